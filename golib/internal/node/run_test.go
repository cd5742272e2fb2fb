package node

import (
	"slices"
	"testing"

	"github.com/redox-loader/redox/golib/internal/plan"
	"github.com/redox-loader/redox/golib/internal/store"
)

// want is the stored order of an epoch by the plan alone.
func want(p *plan.Plan, epoch uint64) []int64 {
	w := p.Epoch(epoch).Walk(0)
	picks := make([]plan.Pick, p.Size())
	w.Next(picks)
	numbers := make([]int64, len(picks))
	for i, k := range picks {
		numbers[i] = p.Number(k.Chunk, k.Sample)
	}
	return numbers
}

func TestEpochsInOrder(t *testing.T) {
	for name, s := range map[string]shape{
		"fixed": fixedShape(t, 1001, 20, 300), "variable": variableShape(t, 1001, 20), "mixed": mixedShape(t, 1001, 20),
	} {
		for _, prefetch := range []int{0, 3} {
			for _, shuffle := range []bool{true, false} {
				d := write(t, s)
				p := d.plan(t, plan.Spec{Seed: 5, Shuffle: shuffle})
				e := d.engine(t, d.source(store.Buffered), 1<<20)
				r := newRun(t, e, RunConfig{Plan: p, World: oneRank(32), Prefetch: prefetch})
				for epoch := range uint64(3) {
					if err := r.Start(epoch, 0); err != nil {
						t.Fatal(err)
					}
					if got := d.epoch(t, r, prefetch == 0); !slices.Equal(got, want(p, epoch)) {
						t.Fatalf("%s, prefetch %d, shuffle %v: epoch %d has another order", name, prefetch, shuffle, epoch)
					}
				}
			}
		}
	}
}
