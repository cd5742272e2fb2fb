package main

import "testing"

// What one request oversleeps must not make the next one later: the pipe counts in its own time.
func TestPipe(t *testing.T) {
	p := newPipe(1000) // 1 ms a unit
	for _, c := range []struct {
		from, units, more, want int64
	}{
		{0, 2, 0, 2e6},
		{0, 1, 0, 3e6},       // behind the first
		{10e6, 1, 0, 11e6},   // it was free meanwhile
		{10e6, 1, 8e6, 20e6}, // a jump
		{0, 0, 0, 20e6},      // nothing to do, but behind all others
	} {
		if got := p.reserve(c.from, float64(c.units), c.more); got != c.want {
			t.Errorf("reserve(%d, %d, %d) = %d, want %d", c.from, c.units, c.more, got, c.want)
		}
	}
	if got := newPipe(0).reserve(5, 100, 2); got != 7 {
		t.Errorf("no pipe: %d, want 7", got)
	}
}

func TestJumps(t *testing.T) {
	h := &handle{}
	const mb = 1 << 20
	for i, c := range []struct {
		from, to int64
		goesOn   bool
	}{
		{0, mb, false},
		{mb, 2 * mb, true},
		{10 * mb, 11 * mb, false}, // a second reader
		{2 * mb, 3 * mb, true},
		{11 * mb, 12 * mb, true},
		{2 * mb, 3 * mb, false}, // that end was used up
		{0, mb, false},
		{mb + near, mb + 2*near, true}, // overtakes
		{mb, mb + near, false},         // was overtaken by more than that
		{50 * mb, 50*mb + near/2, false},
		{50*mb + near, 50*mb + 3*near/2, true},
		{50*mb + near/2, 50*mb + near, true},
		{50*mb + 3*near/2, 50*mb + 2*near, true},
	} {
		if got := h.goesOn(c.from, c.to); got != c.goesOn {
			t.Errorf("read %d, %d to %d: goes on %v", i, c.from, c.to, got)
		}
	}
	for i := range int64(streams) {
		h.goesOn((1000+10*i)*mb, (1001+10*i)*mb)
	}
	if h.goesOn(12*mb, 13*mb) {
		t.Errorf("a stream that %d others came after is still known", streams)
	}
}
