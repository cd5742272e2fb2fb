package node

import (
	"slices"
	"testing"
	"time"

	"github.com/redox-loader/redox/golib/internal/plan"
	"github.com/redox-loader/redox/golib/internal/store"
)

// TestAnotherRunComes: a run whose reader waits for memory gives up what it read ahead when another run is made, and
// still goes on while that one stands still.
func TestAnotherRunComes(t *testing.T) {
	d := write(t, variableShape(t, 600, 6))
	reader := NewReader(d.source(store.Buffered), d.schema, &d.index, 0)
	defer reader.Close()
	for _, window := range []int{2, 4} {
		p := d.plan(t, plan.Spec{Shuffle: true, Window: window})
		for _, batch := range []int{12, 30} {
			cfg := RunConfig{Plan: p, World: oneRank(batch), Timeout: 3 * time.Second}
			least, _, err := reader.Needed(cfg)
			if err != nil {
				t.Fatal(err)
			}
			for done := range 8 {
				e := d.engine(t, d.source(store.Buffered), 2*least)
				a := newRun(t, e, cfg)
				if err := a.Start(0, 0); err != nil {
					t.Fatal(err)
				}
				var got []int64
				for range done {
					b, _ := d.next(t, a, true)
					got = append(got, b...)
				}
				for i := 0; i < 100 && a.user.Blocked() == nil; i++ {
					time.Sleep(20 * time.Microsecond)
				}
				b := newRun(t, e, cfg)
				got = append(got, d.epoch(t, a, true)...)
				if !slices.Equal(got, want(p, 0)) {
					t.Fatal("another order")
				}
				a.Close()
				b.Close()
			}
		}
	}
}
