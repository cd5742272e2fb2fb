//go:build !race

package plan_test

import (
	"testing"

	"github.com/redox-loader/redox/golib/internal/plan"
)

// The hot path does not allocate, in no world. (The race detector allocates by itself.)
func TestNextDoesNotAllocate(t *testing.T) {
	p := mustNew(t, plan.Spec{Samples: repeat(40, 5000), Shuffle: true})
	e := p.Epoch(0)
	w := e.Walk(0)
	picks := make([]plan.Pick, 64)
	if n := testing.AllocsPerRun(1000, func() { w.Next(picks) }); n != 0 {
		t.Errorf("Walk.Next: %v allocations", n)
	}
	o := e.Opens(0)
	if n := testing.AllocsPerRun(1000, func() { o.Next() }); n != 0 {
		t.Errorf("Opens.Next: %v allocations", n)
	}
	for _, exchange := range []plan.Exchange{{}, {Mode: plan.Uniform}} {
		for _, nodes := range [][]int{{1}, {4}, {2, 1}} {
			d := mustDeal(t, e, plan.World{Nodes: nodes, BatchSize: 16, Exchange: exchange}, 0)
			if n := testing.AllocsPerRun(100, func() { d.Next() }); n != 0 {
				t.Errorf("Deal.Next with nodes %v, %+v: %v allocations", nodes, exchange, n)
			}
		}
	}
}
