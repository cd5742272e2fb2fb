//go:build !race

package node

import (
	"runtime"
	"testing"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/plan"
	"github.com/redox-loader/redox/golib/internal/store"
)

// TestNothingPerSample: a batch of 2,048 samples allocates no more than one of 8, and starts no goroutine: what is
// allocated is per batch (its job's channel, its slot, its columns) or per chunk.
func TestNothingPerSample(t *testing.T) {
	for name, s := range map[string]shape{
		"fixed": fixedShape(t, 40000, 2000, 30), "variable": variableShape(t, 40000, 2000), "mixed": mixedShape(t, 40000, 2000),
	} {
		for _, codec := range []chunk.Codec{chunk.None, chunk.LZ4} {
			s.codec = codec
			d := write(t, s)
			p := d.plan(t, plan.Spec{Shuffle: true, Window: 20})
			for _, prefetch := range []int{0, 2} {
				var per [2]float64
				for i, batch := range []int{8, 2048} {
					e := d.engine(t, d.source(store.Buffered), 64<<20)
					r := newRun(t, e, RunConfig{Plan: p, World: oneRank(batch), Prefetch: prefetch})
					if err := r.Start(0, 0); err != nil {
						t.Fatal(err)
					}
					mem := d.memory(batch, r.rec)
					next := func() {
						var b Batch
						b.Fields = mem.Fields
						if prefetch > 0 {
							slot, err := r.Acquire(&b, -1)
							if err != nil {
								t.Fatal(err)
							}
							slot.Release()
						} else if err := r.Next(&mem, -1); err != nil {
							t.Fatal(err)
						}
					}
					for range 5 {
						next()
					}
					routines := runtime.NumGoroutine()
					per[i] = testing.AllocsPerRun(8, next)
					if n := runtime.NumGoroutine() - routines; n > 3 {
						t.Errorf("%s: %d goroutines more", name, n)
					}
					r.Close()
				}
				if per[1] > per[0]+60 {
					t.Errorf("%s, codec %v, prefetch %d: %v allocations for 8 samples, %v for 2,048", name, codec, prefetch, per[0], per[1])
				}
			}
		}
	}
}
