package buffer

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestClassesCoverAndWasteLittle(t *testing.T) {
	last := -1
	for size := int64(1); size < 1<<31; size += 1 + size/57 {
		c := classOf(size)
		got := classSize(c)
		if got < size {
			t.Fatalf("class %d of %d bytes has %d", c, size, got)
		}
		if c > 0 && classSize(c-1) >= Pages(size) {
			t.Fatalf("%d bytes fit class %d already", size, c-1)
		}
		if size > 16*Page && got > Pages(size)+Pages(size)/16+Page {
			t.Fatalf("class %d of %d bytes has %d", c, size, got)
		}
		if c < last {
			t.Fatalf("class falls at %d", size)
		}
		last = c
	}
}

func newArena(t testing.TB, limit int64) (*Budget, *Arena) {
	t.Helper()
	b := NewBudget(limit)
	a, err := b.NewArena("test", limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return b, a
}

func TestReuseIsLIFO(t *testing.T) {
	_, a := newArena(t, 1<<20)
	x, y := a.Alloc(5000), a.Alloc(5000)
	ox, oy := x.Offset(), y.Offset()
	x.Release()
	y.Release()
	if got := a.Alloc(6000).Offset(); got != oy {
		t.Errorf("reused %d, want the last released %d (not %d)", got, oy, ox)
	}
}

func TestBudgetRefusesAndReclaims(t *testing.T) {
	b, a := newArena(t, 10*Page)
	r := a.Alloc(6 * Page)
	if a.Alloc(5*Page) != nil {
		t.Fatal("11 pages out of 10")
	}
	fill(r.Bytes())
	r.Release()
	if b.Used() != 6*Page {
		t.Fatalf("free regions keep their pages; used %d", b.Used())
	}
	s := a.Alloc(9 * Page) // another class: the free one must be punched
	if s == nil || b.Used() != 9*Page {
		t.Fatalf("reclaim failed: used %d", b.Used())
	}
	b.Charge(Page)
	if b.Used() != 10*Page || a.Alloc(1) != nil {
		t.Fatal("charges do not count")
	}
	b.Discharge(Page)
	if b.Peak() != 10*Page {
		t.Errorf("peak %d", b.Peak())
	}
}

// A region that is used again for less keeps its pages until others need the room: chunks differ a little in size, and
// touching pages anew costs more than reading into them.
func TestSmallerReuseKeepsPagesUntilTheyAreNeeded(t *testing.T) {
	b, a := newArena(t, 64*Page)
	r := a.Alloc(33 * Page)
	fill(r.Bytes())
	r.Release()
	s := a.Alloc(30 * Page)
	if s.Offset() != r.Offset() {
		t.Fatal("the touched region was not taken")
	}
	if b.Used() != 33*Page {
		t.Errorf("used %d after a smaller reuse", b.Used())
	}
	if a.Alloc(35*Page) != nil {
		t.Error("more than the budget was given out")
	}
	if u := a.Alloc(34 * Page); u == nil || b.Used() != 64*Page {
		t.Errorf("the spare pages were not given up: used %d", b.Used())
	}
	s.Release()
	if v := a.Alloc(30 * Page); v == nil || v.Offset() != s.Offset() || b.Used() != 64*Page {
		t.Errorf("used %d at the end", b.Used())
	}
}

// Chunks of samples whose sizes vary follow each other in full memory. What one leaves serves the next as it is, but for
// what that is larger; a fresh place for each that is larger cost a fault for every fourth page.
func TestVaryingSizesKeepTheirPages(t *testing.T) {
	_, a := newArena(t, 16<<20)
	random := rand.New(rand.NewPCG(1, 2))
	var live []*Region
	written, before := int64(0), int64(0)
	for i := range 3000 {
		if i == 500 {
			written, before = 0, minorFaults(t)
		}
		size := int64(0)
		for size < 128<<10 {
			size += int64(20_000 * math.Exp(0.8*random.NormFloat64()-0.32)) // log-normal, 20,000 in the mean
		}
		r := a.Alloc(size)
		for ; r == nil; r = a.Alloc(size) {
			gone := random.IntN(len(live))
			live[gone].Release()
			live[gone] = live[len(live)-1]
			live = live[:len(live)-1]
		}
		for at := 0; at < len(r.Bytes()); at += Page {
			r.Bytes()[at] = 1
			written++
		}
		live = append(live, r)
	}
	if faults := minorFaults(t) - before; faults > written/7 {
		t.Errorf("%d page faults in %d pages", faults, written)
	}
	for _, r := range live {
		r.Release()
	}
}

// minorFaults is how many page faults this process had that needed no storage, by the system's count.
func minorFaults(t *testing.T) int64 {
	t.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return usage.Minflt
}

func TestMisusePanics(t *testing.T) {
	_, a := newArena(t, 1<<20)
	r := a.Alloc(1)
	r.Retain()
	r.Release()
	r.Release()
	for name, f := range map[string]func(){"release": r.Release, "retain": r.Retain} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s after the last release did not panic", name)
				}
			}()
			f()
		}()
	}
}

func TestLentMemoryOutlivesClose(t *testing.T) {
	b := NewBudget(1 << 20)
	a, err := b.NewArena("test", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	r := a.Alloc(100)
	fill(r.Bytes())
	a.Close()
	if a.Alloc(1) != nil {
		t.Error("a closed arena gave memory")
	}
	if r.Bytes()[99] != 99 {
		t.Error("lent memory changed")
	}
	r.Release()
	if b.Used() != 0 {
		t.Errorf("%d bytes left", b.Used())
	}
}

// TestAgainstModel runs random operations on two arenas that share a budget and checks, after each, that no two
// live regions overlap, that content is what was written, and that quota and budget hold.
func TestAgainstModel(t *testing.T) {
	const limit = 400 * Page
	rng := rand.New(rand.NewPCG(1, 2))
	b := NewBudget(limit)
	arenas := make([]*Arena, 2)
	for i, quota := range []int64{250 * Page, 150 * Page} {
		a, err := b.NewArena("model", quota)
		if err != nil {
			t.Fatal(err)
		}
		arenas[i] = a
	}
	type held struct {
		r    *Region
		want byte
	}
	live := [2][]held{}
	inUse := [2]int64{}
	for step := range 6000 {
		k := rng.IntN(2)
		a := arenas[k]
		if rng.IntN(2) == 0 || len(live[k]) == 0 {
			size := 1 + rng.Int64N(60*Page)
			r := a.Alloc(size)
			if fits := inUse[k]+Pages(size) <= a.quota; fits != (r != nil) {
				t.Fatalf("step %d: alloc %d with %d of %d in use: got %v", step, size, inUse[k], a.quota, r != nil)
			}
			if r == nil {
				continue
			}
			want := byte(step)
			m := r.Bytes()
			for i := range m {
				m[i] = want
			}
			inUse[k] += Pages(size)
			live[k] = append(live[k], held{r, want})
		} else {
			i := rng.IntN(len(live[k]))
			h := live[k][i]
			if m := h.r.Bytes(); bytes.Count(m, []byte{h.want}) != len(m) {
				t.Fatalf("step %d: content of a live region changed", step)
			}
			inUse[k] -= Pages(int64(len(h.r.Bytes())))
			h.r.Release()
			live[k][i] = live[k][len(live[k])-1]
			live[k] = live[k][:len(live[k])-1]
		}
		if a.Live() != inUse[k] || b.Used() > limit {
			t.Fatalf("step %d: live %d, want %d; used %d", step, a.Live(), inUse[k], b.Used())
		}
	}
	for k := range live {
		for _, h := range live[k] {
			h.r.Release()
		}
		arenas[k].Close()
	}
	if b.Used() != 0 || b.free != 0 {
		t.Errorf("left: used %d free %d", b.Used(), b.free)
	}
}

// TestTouchedIsWhatTheKernelCounts compares the budget's figure with the shared memory the kernel charges us.
func TestTouchedIsWhatTheKernelCounts(t *testing.T) {
	before := shmem(t)
	b, a := newArena(t, 256<<20)
	var rs []*Region
	for i := range int64(20) {
		r := a.Alloc(8<<20 + i*70000)
		fill(r.Bytes())
		rs = append(rs, r)
	}
	check := func(when string) {
		t.Helper()
		if got, want := shmem(t)-before, b.Used(); got > want+want/50 {
			t.Errorf("%s: kernel counts %d, budget %d", when, got, want)
		}
	}
	check("all live")
	for _, r := range rs[:10] {
		r.Release()
	}
	for range 5 {
		fill(a.Alloc(12 << 20).Bytes())
	}
	check("after reuse in another class")
	a.Trim()
	check("after trim")
}

// shmem is this process's resident shared memory.
func shmem(t *testing.T) int64 {
	t.Helper()
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		if rest, ok := strings.CutPrefix(line, "RssShmem:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Skip("no RssShmem")
	return 0
}

func fill(b []byte) {
	for i := range b {
		b[i] = byte(i)
	}
}
