package peer_test

import (
	"hash/crc32"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redox-loader/redox/golib/internal/exchange"
	"github.com/redox-loader/redox/golib/internal/peer/peertest"
)

// dones counts what Done was called with.
type dones struct{ sent, unsent atomic.Int64 }

func (d *dones) add(sent bool) {
	if sent {
		d.sent.Add(1)
	} else {
		d.unsent.Add(1)
	}
}

func (d *dones) want(t *testing.T, sent, unsent int64) {
	t.Helper()
	synctest.Wait()
	if d.sent.Load() != sent || d.unsent.Load() != unsent {
		t.Errorf("%d sent and %d not, want %d and %d", d.sent.Load(), d.unsent.Load(), sent, unsent)
	}
}

// two is a cluster of two nodes, and a lane on each of them.
type two struct {
	*cluster
	lanes [2]exchange.Lane
	dones dones
}

func inTwo(t *testing.T, largest int, test func(t *testing.T, c *two)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &two{cluster: newCluster(t, newJob(1, []int{1, 1}, 0, largest), peertest.NewNetwork(1, peertest.Link{Delay: time.Millisecond}))}
		test(t, c)
		c.close()
		time.Sleep(time.Minute)
	})
}

func (c *two) open(node int, id exchange.ID) exchange.Lane {
	c.t.Helper()
	l, err := c.meshes[node].Open(exchange.Config{ID: id, Rank: node, Ranks: c.job.ranks, Credit: 32, Largest: c.job.largest,
		Notify: func() {}})
	if err != nil {
		c.t.Fatal(err)
	}
	c.lanes[node] = l
	return l
}

// send queues samples of a size for node 1, at the position of their ordinal.
func (c *two) send(from, to, size int) {
	for n := from; n < to; n++ {
		b := make([]byte, size)
		c.lanes[0].Send(exchange.Outgoing{To: 1, Ordinal: uint64(n), Position: int64(n), Done: c.dones.add,
			Sample: exchange.Sample{Data: b, CRC: crc32.Checksum(b, castagnoli)}})
	}
}

func (c *two) expect(from, to int) {
	for n := from; n < to; n++ {
		c.lanes[1].Expect(int64(n), 0)
	}
}

// status wants the samples from ≤ n < to to be in a status.
func (c *two) status(from, to int, want exchange.Status) {
	c.t.Helper()
	time.Sleep(100 * time.Millisecond)
	for n := from; n < to; n++ {
		if _, got := c.lanes[1].Look(uint64(n)); got != want {
			c.t.Errorf("sample %d is in status %d, want %d", n, got, want)
		}
	}
}

// reconnect cuts the nodes from each other until both have noticed.
func (c *two) reconnect() {
	c.network.Cut(peertest.Host(1), true)
	time.Sleep(5 * time.Second)
	c.network.Cut(peertest.Host(1), false)
	for _, m := range c.meshes {
		if err := m.Await(5 * time.Second); err != nil {
			c.t.Fatal(err)
		}
	}
}

func TestNothingIsSentWithoutCredit(t *testing.T) {
	inTwo(t, 100, func(t *testing.T, c *two) {
		c.open(0, exchange.ID{})
		c.send(0, 10, 100)
		time.Sleep(time.Second)
		c.dones.want(t, 0, 0)
		c.open(1, exchange.ID{})
		time.Sleep(time.Second)
		c.dones.want(t, 0, 0)
		c.expect(0, 4)
		c.status(0, 4, exchange.Here)
		c.dones.want(t, 4, 0)
		if s := c.meshes[0].Stats()[1]; s.SamplesOut != 4 || s.BytesOut != 400 {
			t.Errorf("%+v", s)
		}
		if s := c.meshes[1].Stats()[0]; s.SamplesIn != 4 || s.BytesIn != 400 || s.Useless != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// Credit that was given before the owner has opened its lane is not forgotten.
func TestLanesOpenInAnyOrder(t *testing.T) {
	inTwo(t, 100, func(t *testing.T, c *two) {
		c.open(1, exchange.ID{})
		c.expect(0, 4)
		c.status(0, 4, exchange.Coming)
		c.open(0, exchange.ID{})
		c.send(0, 4, 100)
		c.status(0, 4, exchange.Here)
	})
}

func TestSkipAndShed(t *testing.T) {
	inTwo(t, 100, func(t *testing.T, c *two) {
		c.open(0, exchange.ID{})
		c.open(1, exchange.ID{})
		c.send(0, 10, 100)
		c.lanes[0].Skip(1, 10)
		c.lanes[0].Skip(1, 11)
		c.send(12, 14, 100)
		c.lanes[0].Shed(5)
		c.dones.want(t, 0, 5)
		if s := c.meshes[0].Stats()[1]; s.Dropped != 5 {
			t.Errorf("%+v", s)
		}
		c.expect(0, 14)
		c.status(0, 5, exchange.Lost)
		c.status(5, 10, exchange.Here)
		c.status(10, 12, exchange.Lost)
		c.status(12, 14, exchange.Here)
		// One that was to come and is skipped after all, behind what has been sent.
		c.expect(14, 17)
		c.send(15, 16, 100)
		c.status(15, 16, exchange.Here)
		c.lanes[0].Skip(1, 14)
		c.status(14, 15, exchange.Lost)
		c.status(15, 16, exchange.Here)
		c.status(16, 17, exchange.Coming)
	})
}

func TestWhatCannotBeSentIsDoneAtOnce(t *testing.T) {
	inTwo(t, 100, func(t *testing.T, c *two) {
		c.open(0, exchange.ID{})
		for _, to := range []int{-1, 0, 2} {
			c.lanes[0].Send(exchange.Outgoing{To: to, Done: c.dones.add})
			c.lanes[0].Skip(to, 0)
		}
		c.dones.want(t, 0, 3)
		c.send(0, 3, 100)
		c.lanes[0].Close()
		c.dones.want(t, 0, 6)
		c.send(3, 4, 100)
		c.dones.want(t, 0, 7)
		c.lanes[0].Close()
		c.lanes[0].Shed(100)
	})
}

// What the owner has sent before it leaves the lane arrives; what it has not sent is lost, whoever comes when.
func TestLeavingALane(t *testing.T) {
	inTwo(t, 1000, func(t *testing.T, c *two) {
		c.open(0, exchange.ID{})
		c.open(1, exchange.ID{})
		c.expect(0, 20)
		c.send(0, 10, 1000)
		c.status(0, 10, exchange.Here)
		c.lanes[0].Close()
		c.status(0, 10, exchange.Here)
		c.status(10, 20, exchange.Lost)
		c.expect(20, 22)
		c.status(20, 22, exchange.Lost)
	})
	inTwo(t, 1000, func(t *testing.T, c *two) { // before the other has opened it
		c.open(0, exchange.ID{}).Close()
		time.Sleep(100 * time.Millisecond)
		c.open(1, exchange.ID{})
		c.expect(0, 2)
		c.status(0, 2, exchange.Lost)
	})
	inTwo(t, 1000, func(t *testing.T, c *two) { // while they are not connected
		c.open(0, exchange.ID{})
		c.open(1, exchange.ID{})
		time.AfterFunc(4*time.Second, c.lanes[0].Close)
		c.reconnect()
		c.expect(0, 2)
		c.status(0, 2, exchange.Lost)
	})
	inTwo(t, 1000, func(t *testing.T, c *two) { // and opens it again
		c.open(0, exchange.ID{}).Close()
		c.open(1, exchange.ID{})
		c.expect(0, 2)
		c.status(0, 2, exchange.Lost)
		c.open(0, exchange.ID{})
		c.open(1, exchange.ID{Epoch: 1})
		c.lanes[1].Close()
		c.open(1, exchange.ID{Epoch: 2})
		c.open(0, exchange.ID{Epoch: 2})
		c.expect(0, 2)
		c.send(0, 2, 1000)
		c.status(0, 2, exchange.Here)
	})
	inTwo(t, 1000, func(t *testing.T, c *two) { // the receiver leaves before anything was queued for it
		c.open(0, exchange.ID{})
		c.open(1, exchange.ID{}).Close()
		time.Sleep(100 * time.Millisecond)
		c.send(0, 10, 1000)
		c.dones.want(t, 0, 10)
	})
	inTwo(t, 1000, func(t *testing.T, c *two) { // and before the sender has opened it
		c.open(1, exchange.ID{}).Close()
		time.Sleep(100 * time.Millisecond)
		c.open(0, exchange.ID{})
		c.send(0, 10, 1000)
		c.dones.want(t, 0, 10)
	})
	inTwo(t, 1000, func(t *testing.T, c *two) { // the receiver leaves
		c.open(0, exchange.ID{})
		c.open(1, exchange.ID{})
		c.expect(0, 5)
		c.send(0, 10, 1000)
		c.status(0, 5, exchange.Here)
		c.lanes[1].Close()
		time.Sleep(100 * time.Millisecond)
		c.dones.want(t, 5, 5)
	})
}

// After a connection was lost, what was expected on it does not come any more; the rest goes on.
func TestNothingUselessAfterReconnecting(t *testing.T) {
	inTwo(t, 1000, func(t *testing.T, c *two) {
		c.open(0, exchange.ID{})
		c.open(1, exchange.ID{})
		c.expect(0, 20)
		c.send(0, 5, 1000)
		c.status(0, 5, exchange.Here)
		c.reconnect()
		c.status(0, 5, exchange.Here)
		c.status(5, 20, exchange.Lost)
		c.send(5, 25, 1000)
		time.Sleep(time.Second)
		c.dones.want(t, 5, 15) // nothing has to be expected for that
		c.expect(20, 25)
		c.status(5, 20, exchange.Lost)
		c.status(20, 25, exchange.Here)
		c.dones.want(t, 10, 15)
		if s := c.meshes[1].Stats()[0]; s.Useless != 0 || s.SamplesIn != 10 || s.Connects != 2 {
			t.Errorf("%+v", s)
		}
	})
}

func TestNothingComesWhileNotConnected(t *testing.T) {
	inTwo(t, 1000, func(t *testing.T, c *two) {
		c.open(1, exchange.ID{})
		c.network.Cut(peertest.Host(1), true)
		time.Sleep(5 * time.Second)
		c.expect(0, 1)
		if _, status := c.lanes[1].Look(0); status != exchange.Lost {
			t.Errorf("status %d", status)
		}
	})
}

// A connection that ends while a batch is being written ends all of its samples.
func TestConnectionLostWhileWriting(t *testing.T) {
	inTwo(t, 60_000, func(t *testing.T, c *two) {
		c.network.Set(peertest.Host(1), peertest.Host(2), peertest.Link{Delay: time.Millisecond, Rate: 10_000, Queue: 20_000})
		c.open(0, exchange.ID{})
		c.open(1, exchange.ID{})
		c.expect(0, 32)
		c.send(0, 20, 15_000)
		c.send(20, 32, 0)
		time.Sleep(time.Second)
		c.network.Cut(peertest.Host(1), true)
		time.Sleep(5 * time.Second)
		c.lanes[0].Close()
		synctest.Wait()
		if sum := c.dones.sent.Load() + c.dones.unsent.Load(); sum != 32 || c.dones.unsent.Load() < 5 {
			t.Errorf("%d sent, %d not", c.dones.sent.Load(), c.dones.unsent.Load())
		}
		c.status(31, 32, exchange.Lost)
	})
}

// What is not needed any more is not sent.
func TestProgressSavesSending(t *testing.T) {
	inTwo(t, 60_000, func(t *testing.T, c *two) {
		c.network.Set(peertest.Host(1), peertest.Host(2), peertest.Link{Delay: time.Millisecond, Rate: 60_000})
		c.open(0, exchange.ID{})
		c.open(1, exchange.ID{})
		c.expect(0, 32)
		c.send(0, 32, 60_000)
		time.Sleep(3 * time.Second)
		c.lanes[1].Done(32) // all were read elsewhere
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if c.dones.sent.Load() > 8 || c.dones.sent.Load()+c.dones.unsent.Load() != 32 {
			t.Errorf("%d sent, %d not", c.dones.sent.Load(), c.dones.unsent.Load())
		}
		if s := c.meshes[1].Stats()[0]; s.Useless == 0 || s.Useless > 6 {
			t.Errorf("%+v", s)
		}
	})
}

// Passes leave nothing behind: not a stream, not a lane.
func TestManyPasses(t *testing.T) {
	inTwo(t, 100, func(t *testing.T, c *two) {
		for epoch := range uint64(400) {
			c.open(0, exchange.ID{Epoch: epoch})
			c.open(1, exchange.ID{Epoch: epoch})
			c.expect(0, 4)
			c.send(0, 3, 100)
			c.status(0, 3, exchange.Here)
			if epoch%2 == 0 { // sometimes in the middle of it
				c.lanes[0].Close()
				c.lanes[1].Close()
			} else {
				c.lanes[1].Close()
				c.lanes[0].Close()
			}
		}
		for node, m := range c.meshes {
			if s := m.Stats()[1-node]; !s.Connected || s.Connects != 1 || s.Useless != 0 {
				t.Errorf("%+v", s)
			}
		}
	})
}

// What was queued and credited when a node goes still arrives.
func TestCloseSendsWhatIsCredited(t *testing.T) {
	inTwo(t, 10_000, func(t *testing.T, c *two) {
		c.network.Set(peertest.Host(1), peertest.Host(2), peertest.Link{Delay: time.Millisecond, Rate: 1_000_000})
		c.open(0, exchange.ID{})
		c.open(1, exchange.ID{})
		c.expect(0, 32)
		c.send(0, 32, 10_000)
		time.Sleep(10 * time.Millisecond)
		start := time.Now()
		c.meshes[0].Close()
		if took := time.Since(start); took > 600*time.Millisecond { // and not longer than that takes
			t.Errorf("it took %v", took)
		}
		c.status(0, 32, exchange.Here)
		c.dones.want(t, 32, 0)
	})
	inTwo(t, 10_000, func(t *testing.T, c *two) { // but a peer that is gone is not waited for
		c.open(0, exchange.ID{})
		c.open(1, exchange.ID{})
		c.expect(0, 32)
		time.Sleep(10 * time.Millisecond)
		c.network.Cut(peertest.Host(2), true)
		c.send(0, 32, 10_000)
		start := time.Now()
		c.meshes[0].Close()
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestTooMuchIsExpected(t *testing.T) {
	inTwo(t, 100, func(t *testing.T, c *two) {
		c.open(1, exchange.ID{})
		c.expect(0, 32)
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		c.expect(32, 33)
	})
}
