package node

import (
	"testing"

	"github.com/redox-loader/redox/golib/internal/plan"
	"github.com/redox-loader/redox/golib/internal/store"
)

// TestReleaseDuringClose: a slot that comes back while the run is being closed ends the reservation once, and one
// that comes back later keeps no more than slots reserved.
func TestReleaseDuringClose(t *testing.T) {
	d := write(t, fixedShape(t, 100, 10, 100))
	for _, during := range []bool{true, false} {
		e := d.engine(t, d.source(store.Buffered), 1<<20)
		r := newRun(t, e, RunConfig{Plan: d.plan(t, plan.Spec{}), World: oneRank(10), Prefetch: 2})
		if err := r.Start(0, 0); err != nil {
			t.Fatal(err)
		}
		var b Batch
		s, err := r.Acquire(&b, -1)
		if err != nil {
			t.Fatal(err)
		}
		<-r.turn // as a call does that is under way
		done := make(chan struct{})
		go func() {
			r.Close()
			close(done)
		}()
		<-r.stop
		if during {
			s.Release()
		}
		r.turn <- struct{}{}
		<-done
		if !during {
			if e.reserved.chunks != 0 || e.reserved.slots == 0 {
				t.Errorf("with a slot lent by a closed run, %+v is reserved", e.reserved)
			}
			s.Release()
		}
		if e.refs != 1 || e.reserved != (demand{}) || len(e.runs) != 0 {
			t.Fatalf("%d users, %d runs, %+v reserved", e.refs, len(e.runs), e.reserved)
		}
	}
}
