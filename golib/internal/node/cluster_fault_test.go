package node

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/plan"
)

// faultSetup is three nodes with an even pace that exchange two thirds of their samples.
func faultSetup(t *testing.T, d *dataset, nodes ...int) setup {
	return setup{
		plan:     d.plan(t, plan.Spec{Seed: 5, Shuffle: true, Window: 24, Partitions: 8}),
		world:    plan.World{Nodes: nodes, BatchSize: 16, Exchange: plan.Exchange{Mode: plan.Uniform}},
		prefetch: 2, storage: time.Millisecond, delay: 2 * time.Millisecond, pace: steady(10 * time.Millisecond),
	}
}

// TestNodesThatFail: a node is killed, frozen, cut down to 1 Mbit/s or comes and goes, at any moment. The others get
// exactly what the plan says, in order, and hardly wait.
func TestNodesThatFail(t *testing.T) {
	d := write(t, fixedShape(t, 3000, 20, 1000))
	faults := map[string]struct {
		do    func(c *cluster)
		waits time.Duration // of each survivor, beyond what it reads
	}{
		"killed":          {func(c *cluster) { c.net.Kill(2, true) }, 150 * time.Millisecond},
		"killed silently": {func(c *cluster) { c.net.Kill(2, false) }, 150 * time.Millisecond},
		"frozen":          {func(c *cluster) { c.net.Freeze(2, true) }, 150 * time.Millisecond},
		"slow": {func(c *cluster) {
			c.net.Slow(2, 0, 125_000)
			c.net.Slow(2, 1, 125_000)
		}, 5 * time.Second},
		"late": {func(c *cluster) {
			c.net.Delay(2, 0, 300*time.Millisecond)
			c.net.Delay(2, 1, 300*time.Millisecond)
		}, 300 * time.Millisecond},
		"flapping": {func(c *cluster) {
			for range 4 {
				c.net.Freeze(2, true)
				time.Sleep(70 * time.Millisecond)
				c.net.Freeze(2, false)
				time.Sleep(50 * time.Millisecond)
			}
		}, time.Second},
	}
	for name, f := range faults {
		for _, at := range []time.Duration{0, 3 * time.Millisecond, 100 * time.Millisecond, 400 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s at %v", name, at), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t, d, faultSetup(t, d, 1, 1, 1))
					gone := strings.HasPrefix(name, "killed") || name == "frozen"
					var all, event sync.WaitGroup
					event.Go(func() {
						time.Sleep(at)
						f.do(c)
					})
					for rank := range c.runs {
						if gone && rank == 2 {
							all.Go(func() { _, _ = c.train(rank, 0, 0, int(at/(10*time.Millisecond))) })
						} else {
							all.Go(func() { c.rankEpoch(rank, 0, 0) })
						}
					}
					all.Wait()
					event.Wait()
					c.checkMemory()
					for rank := range 2 {
						_, s := c.runs[rank].Stats()
						measured(t, "waits/"+strings.ReplaceAll(name, " ", "-"), s.WaitPeer.Seconds(), "s")
						if s.WaitPeer > f.waits {
							t.Errorf("rank %d waited %v for peers; %d samples were late, %d read instead", rank, s.WaitPeer, s.PeerLate, s.PeerFallback)
						}
					}
					t.Logf("%+v", c.peers())
					if s := c.peers(); gone && s.PeerFallback == 0 {
						t.Error("nothing was read in place of the node that is gone")
					}
					if name == "frozen" {
						c.net.Freeze(2, false)
					}
					c.close()
				})
			})
		}
	}
}

// TestStorageThatIsNotShared: where nobody else can read what a dead node had, the error names it and its partitions;
// where it comes late, it is waited for, in calls of any length.
func TestStorageThatIsNotShared(t *testing.T) {
	d := write(t, fixedShape(t, 2000, 20, 100))
	for _, it := range []struct {
		dies  bool
		slice time.Duration
	}{{dies: true}, {dies: false}, {slice: 3 * time.Millisecond}, {dies: true, slice: 10 * time.Millisecond}} {
		dies := it.dies
		synctest.Test(t, func(t *testing.T) {
			s := faultSetup(t, d, 1, 1)
			if it.slice > 0 {
				s.prefetch, s.slice = 0, it.slice
			}
			c := newCluster(t, d, s)
			homes := c.setup.plan.Homes(c.setup.world.Nodes, 0)
			e := c.setup.plan.Epoch(0)
			for node, f := range c.storage {
				f.Fail = func(file uint32, off int64, _ int) error {
					for i, x := range d.index.Entries {
						if x.Shard == file && off >= int64(x.Offset) && off < int64(x.Offset+x.Stored) && int(homes[e.Partition(plan.ChunkID(i))]) != node {
							return syscall.ENOENT
						}
					}
					return nil
				}
			}
			if dies {
				c.net.Kill(1, false)
			} else {
				c.net.Delay(1, 0, 500*time.Millisecond)
				c.net.Delay(0, 1, 500*time.Millisecond)
			}
			var all sync.WaitGroup
			for rank := range 2 {
				if dies && rank == 1 {
					continue
				}
				all.Go(func() {
					if !dies {
						_, err := c.train(rank, 0, 0, 5)
						if err != nil {
							t.Errorf("rank %d: %v", rank, err)
						}
						return
					}
					_, err := c.train(rank, 0, 0, -1)
					var f *fault.Error
					if !errors.As(err, &f) || f.Kind != fault.Peer || f.Peer != "node 1" || !errors.Is(err, syscall.ENOENT) {
						t.Errorf("got %+v", err)
						return
					}
					for partition, home := range homes {
						if listed := strings.Contains(f.Message, " "+strconv.Itoa(partition)+",") || strings.Contains(f.Message, " "+strconv.Itoa(partition)+")"); listed != (home == 1) {
							t.Errorf("partition %d of node %d: %v", partition, home, err)
						}
					}
				})
			}
			all.Wait()
			c.close()
		})
	}
}

// TestStallNamesThePeer: with no time to wait, the message says whose sample is missing.
func TestStallNamesThePeer(t *testing.T) {
	d := write(t, fixedShape(t, 2000, 20, 100))
	synctest.Test(t, func(t *testing.T) {
		s := faultSetup(t, d, 1, 1)
		s.timeout, s.prefetch = 80*time.Millisecond, 0
		c := newCluster(t, d, s)
		c.net.Freeze(1, true)
		_, err := c.train(0, 0, 0, -1)
		if fault.KindOf(err) != fault.TimedOut || !strings.Contains(err.Error(), "a sample of node 1's partition ") {
			t.Errorf("got %v", err)
		}
		if _, s := c.runs[0].Stats(); s.WaitPeer < 70*time.Millisecond || s.WaitPeer > s.Wait {
			t.Errorf("waits: %+v", s)
		}
		c.close()
	})
}

// TestARankThatStopsAskingStopsNobody, whatever memory there is: the others finish, and so does it when it comes back,
// with exactly its samples.
func TestARankThatStopsAskingStopsNobody(t *testing.T) {
	d := write(t, fixedShape(t, 3000, 20, 1000))
	for _, limit := range []int64{-1, 0} {
		for _, nodes := range [][]int{{1, 1, 1}, {2, 2}} {
			synctest.Test(t, func(t *testing.T) {
				s := faultSetup(t, d, nodes...)
				s.limit = limit
				back := make(chan struct{})
				pace := s.pace
				s.pace = func(rank, batch int) time.Duration {
					if rank == 1 && batch == 5 {
						<-back
					}
					return pace(rank, batch)
				}
				c := newCluster(t, d, s)
				var others, all sync.WaitGroup
				begin := time.Now()
				for rank := range c.runs {
					if rank == 1 {
						all.Go(func() { c.rankEpoch(rank, 0, 0) })
					} else {
						others.Go(func() { c.rankEpoch(rank, 0, 0) })
					}
				}
				others.Wait()
				t.Logf("limit %d, nodes %v: %v; %+v", limit, nodes, time.Since(begin), c.peers())
				if took := time.Since(begin); took > 5*time.Second {
					t.Errorf("the others took %v", took)
				}
				close(back)
				all.Wait()
				c.checkMemory()
				c.close()
			})
		}
	}
}

// TestDamagedChunkOfAnOwner: corrupt samples are not sent; the receiver's own reading finds out, and handles them as
// its own. The good ones arrive.
func TestDamagedChunkOfAnOwner(t *testing.T) {
	d := write(t, fixedShape(t, 1000, 20, 100))
	for _, skip := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := faultSetup(t, d, 1, 1, 1)
			s.skip = skip
			c := newCluster(t, d, s)
			for _, f := range c.storage {
				files := f.Files.(memoryFiles)
				e := d.index.Entries[7]
				copied := append([]byte(nil), files[e.Shard]...)
				copied[int64(e.Offset)+d.payload(7)+3] ^= 1
				f.Files = append(append(memoryFiles(nil), files[:e.Shard]...), append(memoryFiles{copied}, files[e.Shard+1:]...)...)
			}
			var all sync.WaitGroup
			failed := make([]error, len(c.runs))
			for rank := range c.runs {
				all.Go(func() { _, failed[rank] = c.train(rank, 0, 0, -1) })
			}
			all.Wait()
			hurt, skipped := 0, int64(0)
			for rank, err := range failed {
				if err != nil {
					hurt++
					var f *fault.Error
					if !errors.As(err, &f) || f.Kind != fault.Corrupt || f.Sample != 140 {
						t.Errorf("rank %d: %v", rank, err)
					}
				}
				_, s := c.runs[rank].Stats()
				skipped += s.Skipped
			}
			if skip && (hurt != 0 || skipped != 1) || !skip && hurt != 1 {
				t.Errorf("skip %v: %d ranks failed, %d samples were skipped", skip, hurt, skipped)
			}
			c.close()
		})
	}
}

// TestSlowStorageIsNotLateNodes: where storage is what everybody waits for, the other nodes are no later than this one,
// and reading their samples from storage would only make it worse.
func TestSlowStorageIsNotLateNodes(t *testing.T) {
	d := write(t, fixedShape(t, 3000, 20, 100))
	for _, storage := range []time.Duration{50 * time.Millisecond, 150 * time.Millisecond, 500 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			s := faultSetup(t, d, 1, 1, 1)
			s.storage, s.pace, s.world.Pad = storage, nil, plan.PadNone
			c := newCluster(t, d, s)
			begin := time.Now()
			c.epoch(0, 0)
			p := c.peers()
			t.Logf("%v: %v; %d samples, %d late, %d read instead", storage, time.Since(begin), p.PeerSamples, p.PeerLate, p.PeerFallback)
			if p.PeerFallback*50 > p.PeerSamples {
				t.Errorf("%v: %d of %d samples were read from storage instead", storage, p.PeerFallback, p.PeerSamples)
			}
			c.close()
		})
	}
}
