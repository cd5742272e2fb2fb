package peer_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redox-loader/redox/golib/internal/exchange"
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
				j := newJob(1, ranks, 3000, 5000)
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
