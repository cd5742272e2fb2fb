package peer_test

import (
	"fmt"
	"hash/crc32"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redox-loader/redox/golib/internal/exchange"
	"github.com/redox-loader/redox/golib/internal/peer"
	"github.com/redox-loader/redox/golib/internal/peer/peertest"
)

// run exchanges all samples of the job once, and returns a runner for each rank.
func (c *cluster) run(id exchange.ID, credit int, change func(*runner)) []*runner {
	var all []*runner
	rank := 0
	for node, n := range c.job.ranks {
		for first := rank; rank < first+n; rank++ {
			r := newRunner(c.t, c.meshes[node], c.job, id, rank, credit)
			if change != nil {
				change(r)
			}
			if rank == first {
				r.push()
			}
			all = append(all, r)
		}
	}
	var wg sync.WaitGroup
	for _, r := range all {
		wg.Go(func() { r.pull(credit) })
	}
	wg.Wait()
	for _, r := range all {
		r.lane.Close()
	}
	synctest.Wait()
	for _, r := range all {
		c.t.Log(r)
		if n := r.given.Load(); n != 0 {
			c.t.Errorf("rank %d: Done was not called for %d samples", r.rank, n)
		}
	}
	return all
}

func TestAllSamplesArrive(t *testing.T) {
	for _, ranks := range [][]int{{1, 1}, {1, 1, 1}, {2, 1, 3}, {1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1}} {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				positions := 3000
				if raceEnabled {
					positions = 1000
				}
				j := newJob(1, ranks, positions, 5000)
				c := newCluster(t, j, peertest.NewNetwork(1, peertest.Link{Delay: time.Millisecond / 2}))
				for epoch := range uint64(2) {
					start := time.Now()
					for _, r := range c.run(exchange.ID{Epoch: epoch}, 32, func(r *runner) { r.hedge = time.Second }) {
						if r.lost+r.late > 0 || r.here != len(j.incoming(r.rank)) {
							t.Errorf("rank %d: %d here, %d lost, %d late of %d", r.rank, r.here, r.lost, r.late, len(j.incoming(r.rank)))
						}
					}
					t.Logf("%v", time.Since(start))
				}
				c.close()
				time.Sleep(time.Minute)
			})
		})
	}
}

// TestReceiverHoldsItsCreditOnly: however many nodes have samples ready, what has come and was not taken yet is never
// more than the credit, and so is the memory that is mapped for it.
func TestReceiverHoldsItsCreditOnly(t *testing.T) {
	const credit, largest = 16, 110 << 10
	samples := 400
	if raceEnabled {
		samples = 100
	}
	for _, nodes := range []int{2, 4, 8} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJob(1, slices.Repeat([]int{1}, nodes), 0, largest)
				c := newCluster(t, j, peertest.NewNetwork(1, peertest.Link{Delay: time.Millisecond / 2}))
				lanes := make([]exchange.Lane, nodes)
				for node := range lanes {
					var err error
					if lanes[node], err = c.meshes[node].Open(exchange.Config{Rank: node, Ranks: j.ranks, Credit: credit, Largest: largest,
						Notify: func() {}}); err != nil {
						t.Fatal(err)
					}
				}
				owner := func(n int) int { return 1 + n%(nodes-1) }
				data := make([]byte, largest)
				sum := crc32.Checksum(data, castagnoli)
				for n := range samples {
					lanes[owner(n)].Send(exchange.Outgoing{To: 0, Ordinal: uint64(n), Position: int64(n), Done: func(bool) {},
						Sample: exchange.Sample{Data: data, CRC: sum}})
				}
				peak := int64(0)
				for n, expected := 0, 0; n < samples; n++ {
					for ; expected < min(n+credit, samples); expected++ {
						lanes[0].Expect(int64(expected), owner(expected))
					}
					time.Sleep(20 * time.Millisecond) // all that is credited comes
					held := int64(-n * largest)
					for _, s := range c.meshes[0].Stats() {
						held += s.BytesIn
					}
					peak = max(peak, held)
					if _, status := lanes[0].Look(uint64(n)); status != exchange.Here {
						t.Fatalf("sample %d is in status %d", n, status)
					}
					lanes[0].Done(uint64(n) + 1)
				}
				mapped := peer.RingBytes(lanes[0])
				t.Logf("measured receiver/nodes=%d/held %g of-credit", nodes, float64(peak)/(credit*largest))
				t.Logf("measured receiver/nodes=%d/mapped %g of-credit", nodes, float64(mapped)/(credit*largest))
				if peak < credit*largest/2 || peak > credit*largest || mapped > credit*largest {
					t.Errorf("up to %d bytes were held, %d are mapped, for a credit of %d", peak, mapped, credit*largest)
				}
				for _, l := range lanes {
					l.Close()
				}
				c.close()
				time.Sleep(time.Minute)
			})
		})
	}
}
