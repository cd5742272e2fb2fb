package node

import (
	"testing"

	"github.com/redox-loader/redox/golib/internal/exchange/exchangetest"
	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/plan"
	"github.com/redox-loader/redox/golib/internal/store"
)

// TestCreditFollowsMemory: the least limit is just enough, one byte less is refused; with more memory there is more
// credit, never more than can be used, and what it is for is reserved.
func TestCreditFollowsMemory(t *testing.T) {
	d := write(t, fixedShape(t, 4000, 20, 1000))
	net := exchangetest.New(3, 0)
	defer net.Close()
	p := d.plan(t, plan.Spec{Shuffle: true, Window: 24, Partitions: 8})
	for _, x := range []plan.Exchange{{Mode: plan.Local}, {Mode: plan.Uniform}} {
		for node, ranks := 0, []int{1, 2, 1}; node < 3; node++ {
			rank := []int{0, 2, 3}[node]
			cfg := RunConfig{Plan: p, World: plan.World{Nodes: ranks, BatchSize: 32, Exchange: x}, Rank: rank, Prefetch: 1, Exchange: net.Node(node)}
			least, good, err := d.engine(t, d.source(store.Buffered), 1).Needed(cfg)
			if err != nil || good <= least {
				t.Fatalf("least %d, good %d (%v)", least, good, err)
			}
			if _, err := d.engine(t, d.source(store.Buffered), least-1).NewRun(cfg); fault.KindOf(err) != fault.Memory {
				t.Errorf("one byte less than needed: %v", err)
			}
			before := 0
			for _, limit := range []int64{least, least + (good-least)/2, good, 4 * good, 64 * good} {
				e := d.engine(t, d.source(store.Buffered), limit)
				r := newRun(t, e, cfg)
				if r.credit < before || r.credit < leastCredit || r.credit > mostCredit {
					t.Errorf("limit %d: credit %d after %d", limit, r.credit, before)
				}
				before = r.credit
				held := int64(r.credit) + int64(r.margin.left.Load()) + int64(cfg.workers()+1)
				if r.need.scratch < held*r.largest || e.reserved.total() > limit {
					t.Errorf("limit %d: %d bytes reserved for %d samples of %d", limit, r.need.scratch, held, r.largest)
				}
				r.Close()
			}
			if want := d.engine(t, d.source(store.Buffered), 1).wantedCredit(&cfg); before != want {
				t.Errorf("with plenty of memory there is credit %d, want %d", before, want)
			}
		}
	}
}

// TestExchangeOfAnotherNode: a run refuses connections that are not its own node's.
func TestExchangeOfAnotherNode(t *testing.T) {
	d := write(t, fixedShape(t, 100, 10, 10))
	net := exchangetest.New(2, 0)
	defer net.Close()
	cfg := RunConfig{Plan: d.plan(t, plan.Spec{Shuffle: true}), World: plan.World{Nodes: []int{1, 1}, BatchSize: 4}, Rank: 1, Exchange: net.Node(0)}
	if _, err := d.engine(t, d.source(store.Buffered), 8<<20).NewRun(cfg); fault.KindOf(err) != fault.Invalid {
		t.Errorf("got %v", err)
	}
}
