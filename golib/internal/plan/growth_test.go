package plan_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/redox-loader/redox/golib/internal/plan"
)

// each is what a chunk of 8 MiB has of samples of 21 KB.
const each = 390

// BenchmarkGrowth plans ever larger data sets: nothing of it may grow faster than they do. A walk is measured over its
// first two million positions, or as many as there are; memory is that of plan, epoch and walk together.
func BenchmarkGrowth(b *testing.B) {
	for samples := 10_000; samples <= 1_000_000_000; samples *= 10 {
		counts := repeat(each, max(1, samples/each))
		b.Run(fmt.Sprintf("samples=%d", samples), func(b *testing.B) {
			before := heap()
			p := mustNew(b, plan.Spec{Samples: counts, Seed: 1, Shuffle: true})
			e := p.Epoch(0)
			w := e.Walk(0)
			picks := make([]plan.Pick, 256)
			w.Next(picks)
			memory := float64(heap() - before)
			walked := 0
			for b.Loop() {
				w = e.Walk(0)
				for walked = 0; walked < 2_000_000; walked += len(picks) {
					if w.Next(picks) < len(picks) {
						break
					}
				}
			}
			reportPerSample(b, float64(walked))
			b.ReportMetric(memory, "B")
			runtime.KeepAlive([]any{p, e, w})
		})
	}
}

// BenchmarkNodes deals global batches of 256 samples for each rank, one rank on each node.
func BenchmarkNodes(b *testing.B) {
	p := largePlan(b, each, 128)
	e := p.Epoch(0)
	for _, nodes := range []int{1, 2, 4, 8} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			world := plan.World{BatchSize: 256}
			for range nodes {
				world.Nodes = append(world.Nodes, 1)
			}
			d := mustDeal(b, e, world, 0)
			for b.Loop() {
				if _, ok := d.Next(); !ok {
					b.StopTimer()
					d = mustDeal(b, e, world, 0)
					b.StartTimer()
				}
			}
			reportPerSample(b, float64(world.BatchSize*nodes))
		})
	}
}
