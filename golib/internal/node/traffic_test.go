package node

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redox-loader/redox/golib/internal/plan"
)

// TestTraffic: what crosses between the nodes is what the formulas say. Local first: nothing in the middle of the epoch
// where the nodes divide the partitions, else the structural share; 1.2 % in all beyond that, for ramp and tail.
// Uniform: all but a node's own share.
func TestTraffic(t *testing.T) {
	d := write(t, fixedShape(t, 60_000, 50, 20))
	worlds := []int{2, 3, 4, 5, 8}
	if testing.Short() {
		worlds = worlds[:2]
	}
	for _, nodes := range worlds {
		for _, mode := range []plan.ExchangeMode{plan.Local, plan.Uniform} {
			t.Run(fmt.Sprint(nodes, mode), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const partitions = 64
					w := plan.World{Nodes: slices.Repeat([]int{1}, nodes), BatchSize: 64, DropLast: true, Exchange: plan.Exchange{Mode: mode}}
					batches := 60_000 / (64 * nodes)
					at := map[int][]Stats{}
					var mu sync.Mutex
					var c *cluster
					c = newCluster(t, d, setup{
						plan:  d.plan(t, plan.Spec{Seed: 3, Shuffle: true, Window: 128, Partitions: partitions}),
						world: w, prefetch: 1, delay: time.Millisecond,
						pace: func(rank, batch int) time.Duration {
							if batch == batches/4 || batch == batches*3/4 {
								_, s := c.runs[rank].Stats()
								mu.Lock()
								at[rank] = append(at[rank], s)
								mu.Unlock()
							}
							return 10 * time.Millisecond
						},
					})
					c.epoch(0, 0)
					all := c.peers()
					middle := int64(0)
					for _, s := range at {
						middle += s[1].PeerBytesIn - s[0].PeerBytesIn
					}
					sample := float64(d.index.Entries[0].MaxRaw)
					share := float64(all.PeerBytesIn) / sample / float64(all.Samples)
					p, s := float64(nodes), float64(partitions)
					structural := math.Mod(s, p) * (math.Ceil(s/p)/s - 1/p)
					t.Logf("%.4f of the samples crossed, %.4f structural; %d bytes in the middle; %d late, %d read instead", share, structural,
						middle, all.PeerLate, all.PeerFallback)
					kind := fmt.Sprintf("traffic/%s/nodes=%d/", map[plan.ExchangeMode]string{plan.Local: "local", plan.Uniform: "uniform"}[mode], nodes)
					measured(t, kind+"share", 100*share, "%")
					measured(t, kind+"structural", 100*structural, "%")
					measured(t, kind+"middle", float64(middle), "bytes")
					// The paper's bound: what crosses where the samples of a batch lie on nodes at random and are moved to even it out.
					measured(t, kind+"paper", 100*math.Sqrt((1-1/p)/(2*math.Pi*float64(w.BatchSize))), "%")
					switch {
					case mode == plan.Uniform && math.Abs(share-(p-1)/p) > 0.01:
						t.Errorf("uniform: %.4f crossed", share)
					case mode == plan.Local && partitions%nodes == 0 && middle > 0:
						t.Errorf("%d bytes crossed in the middle of the epoch", middle)
					case mode == plan.Local && share > structural+0.012:
						t.Errorf("local: %.4f crossed, %.4f of it structural", share, structural)
					}
					if all.PeerBytesOut != all.PeerBytesIn || all.PeerFallback != 0 {
						t.Errorf("%d bytes were sent, %d used", all.PeerBytesOut, all.PeerBytesIn)
					}
					c.close()
				})
			})
		}
	}
}

// TestSamplesAreThereBeforeTheyAreAskedFor: 97 of 100 of them, with 5 ms between the nodes.
func TestSamplesAreThereBeforeTheyAreAskedFor(t *testing.T) {
	d := write(t, fixedShape(t, 20_000, 50, 20))
	for _, mode := range []plan.ExchangeMode{plan.Local, plan.Uniform} {
		for _, nodes := range []int{3, 5, 6} { // they don't divide the partitions
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, d, setup{
					plan:     d.plan(t, plan.Spec{Seed: 3, Shuffle: true, Window: 64, Partitions: 16}),
					world:    plan.World{Nodes: slices.Repeat([]int{1}, nodes), BatchSize: 32, DropLast: true, Exchange: plan.Exchange{Mode: mode}},
					prefetch: 2, storage: 2 * time.Millisecond, delay: 5 * time.Millisecond, pace: steady(10 * time.Millisecond),
				})
				c.epoch(0, 0)
				s := c.peers()
				t.Logf("%v, %d nodes: %d of %d late", mode, nodes, s.PeerLate, s.PeerSamples)
				measured(t, fmt.Sprintf("resident/%d/nodes=%d", mode, nodes), 100*(1-float64(s.PeerLate)/float64(s.PeerSamples)), "%")
				if s.PeerSamples < 100 || s.PeerLate*100 > 3*s.PeerSamples {
					t.Errorf("%d of %d samples were late", s.PeerLate, s.PeerSamples)
				}
				c.close()
			})
		}
	}
}

// TestStickyReadsWhatDoesNotFit: with a sticky plan the nodes keep their chunks, so from the second epoch on storage is
// read for what does not fit into their memory together, within 1 %; for nothing if it all fits.
func TestStickyReadsWhatDoesNotFit(t *testing.T) {
	d := write(t, fixedShape(t, 30_000, 50, 80)) // 600 chunks of 8 KiB
	for _, share := range []float64{0.3, 0.6, 1} {
		synctest.Test(t, func(t *testing.T) {
			s := setup{
				plan:  d.plan(t, plan.Spec{Seed: 3, Shuffle: true, Window: 24, Partitions: 12, Sticky: true}),
				world: plan.World{Nodes: []int{1, 1, 1}, BatchSize: 50, DropLast: true},
				delay: time.Millisecond, storage: time.Millisecond, pace: steady(10 * time.Millisecond), prefetch: 1,
			}
			const chunk = 8192
			s.limit = 64 * chunk // for slots and samples of other nodes
			s.limit += int64(share * 200 * chunk)
			c := newCluster(t, d, s)
			room := int64(0)
			for _, e := range c.nodes {
				e.mu.Lock()
				room += (e.limit - e.reserved.slots - e.reserved.scratch) / chunk
				e.mu.Unlock()
			}
			for epoch := range uint64(4) {
				c.epoch(epoch, 0)
				chunks, singles := c.reads()
				if least := max(0, 600-room); epoch > 0 && chunks > least+6 || singles > 0 {
					t.Errorf("epoch %d, with room for %d of 600: %d read, %d samples by themselves", epoch, room, chunks, singles)
				}
			}
			c.close()
		})
	}
}
