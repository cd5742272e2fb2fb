package peer_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redox-loader/redox/golib/internal/exchange"
	"github.com/redox-loader/redox/golib/internal/peer"
	"github.com/redox-loader/redox/golib/internal/peer/peertest"
)

// steady runs a job of several seconds in which every rank takes a sample every step, while something happens.
func (c *cluster) steady(step time.Duration, happens func()) []*runner {
	var wg sync.WaitGroup
	wg.Go(happens)
	all := c.run(exchange.ID{Epoch: 7}, 32, func(r *runner) { r.step = step })
	wg.Wait()
	return all
}

// inCluster runs a test in virtual time with three nodes.
func inCluster(t *testing.T, nodes int, link peertest.Link, test func(t *testing.T, c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ranks := make([]int, nodes)
		for i := range ranks {
			ranks[i] = 1
		}
		c := newCluster(t, newJob(2, ranks, 1000*nodes, 3000), peertest.NewNetwork(3, link))
		test(t, c)
		c.close()
		time.Sleep(time.Minute)
	})
}

// between is a sum that must lie in a range.
func between(t *testing.T, what string, got, least, most int) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("%s: %d, want %d to %d", what, got, least, most)
	}
}

func TestLossAndReorderingLoseNothing(t *testing.T) {
	link := peertest.Link{Delay: time.Millisecond, Jitter: 2 * time.Millisecond, Loss: 0.01}
	inCluster(t, 3, link, func(t *testing.T, c *cluster) {
		for _, r := range c.steady(time.Millisecond, func() {}) {
			if r.lost != 0 || r.late > 3 {
				t.Errorf("rank %d: %d lost, %d late", r.rank, r.lost, r.late)
			}
		}
	})
}

// A node that is cut off costs its own samples and no others, and comes back by itself.
func TestCutOffAndBack(t *testing.T) {
	inCluster(t, 3, peertest.Link{Delay: time.Millisecond}, func(t *testing.T, c *cluster) {
		all := c.steady(5*time.Millisecond, func() {
			time.Sleep(time.Second)
			c.network.Cut(peertest.Host(3), true)
			time.Sleep(3 * time.Second)
			c.network.Cut(peertest.Host(3), false)
		})
		for _, r := range all[:2] {
			// Until the death is noticed each of its samples is late. Then they are lost at once until it is back.
			between(t, "lost", r.lost, 1, 260)
			between(t, "late", r.late, 1, 30)
			between(t, "here", r.here, 400, 1000)
		}
		for _, m := range c.meshes[:2] {
			if s := m.Stats()[2]; !s.Connected || s.Connects != 2 {
				t.Errorf("the node is not back: %+v", s)
			}
		}
		if s := c.meshes[0].Stats()[1]; s.Connects != 1 || s.Useless != 0 {
			t.Errorf("the other pair has noticed something: %+v", s)
		}
	})
}

func TestFrozenAndBack(t *testing.T) {
	for _, frozen := range []time.Duration{time.Second, 5 * time.Second} {
		t.Run(frozen.String(), func(t *testing.T) {
			inCluster(t, 3, peertest.Link{Delay: time.Millisecond}, func(t *testing.T, c *cluster) {
				all := c.steady(5*time.Millisecond, func() {
					time.Sleep(time.Second)
					c.network.Freeze(peertest.Host(3))
					time.Sleep(frozen)
					c.network.Thaw(peertest.Host(3))
				})
				for _, r := range all[:2] {
					between(t, "late and lost", r.late+r.lost, 1, 350)
				}
				time.Sleep(2 * time.Second)
				connects := map[time.Duration]int64{time.Second: 1, 5 * time.Second: 2}[frozen]
				if s := c.meshes[0].Stats()[2]; !s.Connected || s.Connects != connects {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// A link that breaks again and again, before and after its connection is given up.
func TestFlappingLink(t *testing.T) {
	inCluster(t, 3, peertest.Link{Delay: time.Millisecond}, func(t *testing.T, c *cluster) {
		all := c.steady(8*time.Millisecond, func() {
			for i := range 6 {
				c.network.Cut(peertest.Host(3), true)
				time.Sleep(time.Duration(200+500*i) * time.Millisecond)
				c.network.Cut(peertest.Host(3), false)
				time.Sleep(300 * time.Millisecond)
			}
		})
		for _, r := range all {
			between(t, "all", r.here+r.late+r.lost, len(c.job.incoming(r.rank)), len(c.job.incoming(r.rank)))
			between(t, "here", r.here, 200, 1000)
		}
	})
}

// A peer behind a slow link neither delays others nor is sent what it does not need any more.
func TestSlowLink(t *testing.T) {
	inCluster(t, 3, peertest.Link{Delay: time.Millisecond}, func(t *testing.T, c *cluster) {
		slow := peertest.Link{Delay: time.Millisecond, Rate: 125_000 / 4, Queue: 30_000}
		for node := range 2 {
			c.network.Set(peertest.Host(3), peertest.Host(node+1), slow)
			c.network.Set(peertest.Host(node+1), peertest.Host(3), slow)
		}
		for _, r := range c.steady(10*time.Millisecond, func() {})[:2] {
			other := 0 // of the samples that the fast node owns
			for _, p := range c.job.incoming(r.rank) {
				if c.job.owner[p] != 2 {
					other++
				}
			}
			between(t, "here", r.here, other, len(c.job.incoming(r.rank)))
		}
		if s := c.meshes[0].Stats()[1]; s.Useless != 0 || s.Dropped != 0 {
			t.Errorf("the fast pair: %+v", s)
		}
	})
}

// restart replaces a node's process by one with another key.
func (c *cluster) restart(node int) {
	config := c.configs[node]
	config.Incarnation = 1 << 62
	m, err := peer.Listen(config)
	if err != nil {
		c.t.Fatal(err)
	}
	c.meshes[node] = m
	c.meet()
}

// kill ends a node as SIGKILL does: nobody hears of it.
func (c *cluster) kill(node int) {
	host := peertest.Host(node + 1)
	c.network.Cut(host, true)
	c.meshes[node].Close()
	c.meshes[node] = nil
	c.network.Cut(host, false)
}

func TestKilledAndRestarted(t *testing.T) {
	for victim := range 3 {
		inCluster(t, 3, peertest.Link{Delay: time.Millisecond}, func(t *testing.T, c *cluster) {
			var runners []*runner
			for rank := range 3 {
				r := newRunner(t, c.meshes[rank], c.job, exchange.ID{}, rank, 32)
				r.step = 5 * time.Millisecond
				r.push()
				runners = append(runners, r)
			}
			var wg sync.WaitGroup
			for _, r := range runners {
				if r.rank != victim {
					wg.Go(func() { r.pull(32) })
				}
			}
			time.Sleep(time.Second)
			c.kill(victim)
			time.Sleep(time.Second)
			c.restart(victim)
			// The new process begins the same lane from its start: what its peers sent to the one before is lost, and it
			// is told at once.
			again := newRunner(t, c.meshes[victim], c.job, exchange.ID{}, victim, 32)
			again.push()
			if err := c.meshes[victim].Await(10 * time.Second); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			again.pull(32)
			if again.late > 40 {
				t.Errorf("%d samples were late in %v", again.late, time.Since(start))
			}
			wg.Wait()
			for _, r := range runners {
				if r.rank != victim {
					between(t, "here", r.here, 400, len(c.job.incoming(r.rank)))
					between(t, "late", r.late, 0, 40)
				}
				r.lane.Close()
			}
			again.lane.Close()
			synctest.Wait()
			for _, r := range append(runners, again) {
				t.Log(r)
				if r.given.Load() != 0 {
					t.Errorf("rank %d: Done was not called for %d", r.rank, r.given.Load())
				}
			}
		})
	}
}
