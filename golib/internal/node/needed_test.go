package node

import (
	"errors"
	"testing"

	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/plan"
	"github.com/redox-loader/redox/golib/internal/store"
)

// TestTooLittleMemoryForAll: with several ranks and nodes, too, the error's numbers are those of the limit and the window
// that the user gave, and they are true.
func TestTooLittleMemoryForAll(t *testing.T) {
	d := write(t, fixedShape(t, 2000, 10, 1000))
	for _, nodes := range [][]int{{2}, {4}, {2, 2}, {1, 3}, {1, 1, 1}} {
		world := plan.World{Nodes: nodes, BatchSize: 8, Exchange: plan.Exchange{Mode: plan.Off}}
		ranks := nodes[len(nodes)-1]
		// all are the ranks of the last node on an engine with this limit.
		all := func(limit int64, window int) error {
			e := d.engine(t, d.source(store.Buffered), limit)
			p := d.plan(t, plan.Spec{Shuffle: true, Window: window})
			for rank := range ranks {
				r, err := e.NewRun(RunConfig{Plan: p, World: world, Rank: world.Ranks() - ranks + rank, Prefetch: 3})
				if err != nil {
					return err
				}
				defer r.Close()
			}
			return nil
		}
		given := int64(ranks) * 300 << 10 / int64(len(nodes))
		err := all(given, 40)
		var f *fault.Error
		if !errors.As(err, &f) || f.Kind != fault.Memory || f.Given != given || f.Needed <= given || f.Window < 1 || f.Window >= 40 {
			t.Fatalf("%v: got %v", nodes, err)
		}
		if err := all(f.Needed, 40); err != nil {
			t.Errorf("%v: what is needed is not enough: %v", nodes, err)
		}
		if all(f.Needed-int64(ranks), 40) == nil {
			t.Errorf("%v: less than what is needed was accepted", nodes)
		}
		if err := all(given, int(f.Window)); err != nil {
			t.Errorf("%v: the window that fits is refused: %v", nodes, err)
		}
		if all(given, int(f.Window)+1) == nil {
			t.Errorf("%v: a larger window than the largest was accepted", nodes)
		}
	}
}

// TestHostileSizes: an index that claims impossible sizes asks for too much memory, never for too little.
func TestHostileSizes(t *testing.T) {
	for _, size := range []uint64{1 << 40, 1 << 56, 1<<63 - 1, 1 << 63, 1<<64 - 1} {
		d := write(t, mixedShape(t, 200, 10))
		e := d.engine(t, d.source(store.Buffered), 1<<30)
		for i := range e.index.Entries {
			e.index.Entries[i].Raw, e.index.Entries[i].MaxRaw = size, size
		}
		cfg := RunConfig{Plan: d.plan(t, plan.Spec{Shuffle: true, Window: 4}), World: oneRank(1 << 24), Prefetch: 3}
		_, err := e.NewRun(cfg)
		var f *fault.Error
		if !errors.As(err, &f) || f.Kind != fault.Memory || f.Needed < 1<<40 {
			t.Errorf("%d: %v", size, err)
		}
	}
}
