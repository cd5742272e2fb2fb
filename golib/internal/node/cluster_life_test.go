package node

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redox-loader/redox/golib/internal/peer/peertest"
	"github.com/redox-loader/redox/golib/internal/plan"
)

// TestResumeOnAnotherWorld: an epoch that was begun by one world and broken off is finished by another, from any batch
// on; together they get each sample once.
func TestResumeOnAnotherWorld(t *testing.T) {
	d := write(t, variableShape(t, 700, 9))
	worlds := [][]int{{1, 1}, {2, 1, 1}, {1, 1, 1, 1, 1}, {3}}
	for i, first := range worlds {
		second := worlds[(i+1)%len(worlds)]
		for _, batches := range []int{0, 1, 3, 7} {
			synctest.Test(t, func(t *testing.T) {
				p := d.plan(t, plan.Spec{Seed: 5, Shuffle: true, Window: 12, Partitions: 6})
				seen := map[int64]int{}
				from := int64(0)
				for part, nodes := range [][]int{first, second} {
					c := newCluster(t, d, setup{
						plan: p, world: plan.World{Nodes: nodes, BatchSize: 8, Pad: plan.PadNone, Exchange: plan.Exchange{Mode: plan.Uniform}},
						prefetch: 2, storage: time.Millisecond, delay: time.Millisecond,
					})
					var mu sync.Mutex
					var all sync.WaitGroup
					for rank := range c.runs {
						all.Go(func() {
							n := -1
							if part == 0 {
								n = batches
							}
							got, err := c.train(rank, 0, from, n)
							if err != nil {
								t.Error(err)
							}
							mu.Lock()
							defer mu.Unlock()
							for _, number := range got {
								seen[number]++
							}
						})
					}
					all.Wait()
					if from = c.runs[0].Position(); part == 0 && from != int64(batches*8*len(c.runs)) {
						t.Errorf("position %d after %d batches", from, batches)
					}
					c.close()
				}
				if len(seen) != 700 {
					t.Errorf("%v, then %v after %d batches: %d samples", first, second, batches, len(seen))
				}
				for n, times := range seen {
					if times != 1 {
						t.Errorf("sample %d came %d times", n, times)
					}
				}
			})
		}
	}
}

// TestModesGiveTheSameBatches: who gets what is another matter than what is in a global batch.
func TestModesGiveTheSameBatches(t *testing.T) {
	d := write(t, mixedShape(t, 900, 11))
	var first [][]int64
	for i, x := range []plan.Exchange{{Mode: plan.Local}, {Mode: plan.Uniform}, {Fraction: 0.5}, {Mode: plan.Off}} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, d, setup{
				plan:     d.plan(t, plan.Spec{Seed: 2, Shuffle: true, Window: 12, Partitions: 5}),
				world:    plan.World{Nodes: []int{1, 2, 1}, BatchSize: 6, DropLast: true, Exchange: x},
				prefetch: 2, storage: time.Millisecond, delay: time.Millisecond, pace: steady(3 * time.Millisecond),
			})
			ranks := make([][]int64, len(c.runs))
			var all sync.WaitGroup
			for rank := range c.runs {
				all.Go(func() { ranks[rank], _ = c.train(rank, 0, 0, -1) })
			}
			all.Wait()
			var batches [][]int64
			for at := 0; at < len(ranks[0]); at += 6 {
				var b []int64
				for _, r := range ranks {
					b = append(b, r[at:at+6]...)
				}
				slices.Sort(b)
				batches = append(batches, b)
			}
			if i == 0 {
				first = batches
			}
			if len(batches) != 37 || !slices.EqualFunc(batches, first, slices.Equal) {
				t.Errorf("exchange %v: other global batches", x)
			}
			if s := c.peers(); (x.Mode == plan.Off) != (s.PeerSamples == 0) {
				t.Errorf("exchange %v: %d samples crossed", x, s.PeerSamples)
			}
			c.close()
		})
	}
}

// TestSlowerNodesAreServedAfterTheEnd: nodes that run ahead begin the next epoch, and go on sending what the slower one
// still wants of the one before.
func TestSlowerNodesAreServedAfterTheEnd(t *testing.T) {
	d := write(t, fixedShape(t, 1500, 20, 100))
	synctest.Test(t, func(t *testing.T) {
		s := faultSetup(t, d, 1, 1, 1)
		s.world.Pad = plan.PadNone
		s.pace = func(rank, batch int) time.Duration { return time.Duration(1+rank) * 5 * time.Millisecond }
		c := newCluster(t, d, s)
		var all sync.WaitGroup
		for rank := range c.runs {
			c.runs[rank].credit = 8 // so that the end is not there long before it is wanted
			all.Go(func() {
				for epoch := range uint64(3) {
					c.rankEpoch(rank, epoch, 0)
				}
			})
		}
		all.Wait()
		// Nodes two epochs ahead stop, and those may be so by a hair.
		if _, s := c.runs[2].Stats(); s.PeerFallback > s.PeerSamples/50 || s.PeerSamples == 0 {
			t.Errorf("the slowest read %d of %d samples by themselves", s.PeerFallback, s.PeerSamples)
		}
		c.close()
	})
}

// TestEpochsFollowAtOnce: the first batch of an epoch is there a moment after the last one of the epoch before, over
// the real protocol with 5 ms between the nodes, too.
func TestEpochsFollowAtOnce(t *testing.T) {
	d := write(t, fixedShape(t, 3000, 20, 100))
	for _, real := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := faultSetup(t, d, 1, 1, 1)
			if real {
				s.real = peertest.NewNetwork(1, peertest.Link{Delay: 5 * time.Millisecond})
			}
			c := newCluster(t, d, s)
			var all sync.WaitGroup
			for rank := range c.runs {
				all.Go(func() {
					c.rankEpoch(rank, 0, 0)
					begin := time.Now()
					if _, err := c.train(rank, 1, 0, 1); err != nil {
						t.Error(err)
					}
					took := time.Since(begin) - 10*time.Millisecond // without the trainer's own
					measured(t, fmt.Sprintf("boundary/quic=%v", real), 1e3*took.Seconds(), "ms")
					if took > 20*time.Millisecond {
						t.Errorf("over QUIC %v, rank %d: %v", real, rank, took)
					}
				})
			}
			all.Wait()
			c.close()
		})
	}
}

// TestAnotherRunGetsItsShare: memory that only unsent samples hold goes to a run that comes later, though the node that
// should get them takes none.
func TestAnotherRunGetsItsShare(t *testing.T) {
	d := write(t, fixedShape(t, 3000, 20, 1000))
	joined, over := 0, 0
	for limit := int64(1200 << 10); limit < 2<<20; limit += 40 << 10 {
		synctest.Test(t, func(t *testing.T) {
			s := faultSetup(t, d, 1, 1)
			s.limit = limit
			c := newCluster(t, d, s)
			if _, err := c.train(0, 0, 0, 3); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second) // rank 1 has not begun; rank 0 has read as far ahead as it may
			if c.runs[0].current.Load().push.flying.Load() == 0 {
				t.Fatal("nothing is lent")
			}
			cfg := RunConfig{Plan: s.plan, World: plan.World{Nodes: []int{1}, BatchSize: 16}, Timeout: 10 * time.Second}
			if r, err := c.nodes[0].NewRun(cfg); err == nil {
				joined++
				if c.runs[0].user.Over() > 0 {
					over++
				}
				if err := r.Start(0, 0); err != nil {
					t.Fatal(err)
				}
				if got := d.epoch(t, r, true); len(got) != 3000 {
					t.Errorf("%d samples", len(got))
				}
				r.Close()
			}
			var all sync.WaitGroup
			for rank := range 2 {
				all.Go(func() { c.rankEpoch(rank, 1, 0) })
			}
			all.Wait()
			c.checkMemory()
			c.close()
		})
	}
	if joined == 0 || over == 0 {
		t.Errorf("%d runs joined, %d of them while the other held more than its share", joined, over)
	}
}
