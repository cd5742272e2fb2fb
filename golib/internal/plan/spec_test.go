package plan_test

import (
	"errors"
	"math"
	"testing"

	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/plan"
)

func TestDefaults(t *testing.T) {
	for _, c := range []struct{ chunks, window, partitions int }{
		{1, 1, 1}, {5, 5, 5}, {16, 16, 16}, {100, 16, 16}, {200, 25, 25}, {512, 64, 64}, {800, 100, 64}, {1024, 128, 64}, {1 << 20, 128, 64},
	} {
		p := mustNew(t, plan.Spec{Samples: repeat(3, c.chunks), Shuffle: true})
		if p.Window() != c.window || p.Partitions() != c.partitions {
			t.Errorf("%d chunks: window %d, partitions %d, want %d and %d", c.chunks, p.Window(), p.Partitions(), c.window, c.partitions)
		}
	}
}

// The defaults count the chunks that the subset opens, and what is larger than the data set is cut to it.
func TestShapeIsCutToTheSubset(t *testing.T) {
	samples := repeat(10, 1000)
	for _, c := range []struct {
		spec               plan.Spec
		window, partitions int
	}{
		{plan.Spec{Subset: plan.RangeSubset(samples, 0, 2000)}, 25, 25},
		{plan.Spec{Subset: plan.RangeSubset(samples, 5, 45), Window: 64}, 5, 5},
		{plan.Spec{Window: 5000}, 1000, 64},
		{plan.Spec{Window: 32, Partitions: 64}, 32, 32},
		{plan.Spec{Window: 32, Partitions: 7}, 32, 7},
	} {
		c.spec.Samples, c.spec.Shuffle = samples, true
		p := mustNew(t, c.spec)
		if p.Window() != c.window || p.Partitions() != c.partitions {
			t.Errorf("%+v: window %d, partitions %d, want %d and %d", c.spec.Window, p.Window(), p.Partitions(), c.window, c.partitions)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	some := []uint32{3, 4}
	for name, s := range map[string]plan.Spec{
		"no chunks":           {},
		"no samples":          {Samples: []uint32{0, 0}},
		"empty subset":        {Samples: some, Subset: plan.RangeSubset(some, 7, 7)},
		"subset beyond":       {Samples: some, Subset: plan.RangeSubset(some, 100, 200)},
		"negative window":     {Samples: some, Window: -1},
		"negative partitions": {Samples: some, Partitions: -1},
		"too many partitions": {Samples: some, Partitions: math.MaxUint16 + 1},
	} {
		if p, err := plan.New(s); p != nil || !errors.Is(err, fault.Of(fault.Invalid)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The hash is of what the order depends on, in its effective form, and of nothing else.
func TestHash(t *testing.T) {
	samples := repeat(50, 60)
	base := plan.Spec{Samples: samples, Seed: 1, Shuffle: true, Window: 20, Partitions: 10, Dataset: "a"}
	want := mustNew(t, base).Hash()
	hash := func(change func(*plan.Spec)) string {
		s := base
		change(&s)
		return mustNew(t, s).Hash()
	}
	every := make([]int64, 3000)
	for i := range every {
		every[i] = int64(i)
	}
	for name, h := range map[string]string{
		"a whole range": hash(func(s *plan.Spec) { s.Subset = plan.RangeSubset(samples, 0, 3000) }),
		"a whole list":  hash(func(s *plan.Spec) { s.Subset = list(t, samples, every) }),
	} {
		if h != want {
			t.Errorf("%s is the whole data set, but has another hash", name)
		}
	}
	seen := map[string]string{want: "base"}
	for name, h := range map[string]string{
		"seed":       hash(func(s *plan.Spec) { s.Seed = 2 }),
		"window":     hash(func(s *plan.Spec) { s.Window = 21 }),
		"partitions": hash(func(s *plan.Spec) { s.Partitions = 11 }),
		"sticky":     hash(func(s *plan.Spec) { s.Sticky = true }),
		"shuffle":    hash(func(s *plan.Spec) { s.Shuffle = false }),
		"data set":   hash(func(s *plan.Spec) { s.Dataset = "b" }),
		"subset":     hash(func(s *plan.Spec) { s.Subset = plan.RangeSubset(samples, 0, 2999) }),
		"samples":    hash(func(s *plan.Spec) { s.Samples = append(repeat(50, 59), 49) }),
		"chunks":     hash(func(s *plan.Spec) { s.Samples = append(repeat(50, 60), 0) }),
	} {
		if other, ok := seen[h]; ok {
			t.Errorf("%s has the hash of %s", name, other)
		}
		seen[h] = name
	}
	stored := plan.Spec{Samples: samples}
	other := plan.Spec{Samples: samples, Seed: 9, Window: 4, Partitions: 2, Sticky: true}
	if mustNew(t, stored).Hash() != mustNew(t, other).Hash() {
		t.Error("in stored order seed, window, partitions and sticky play no part")
	}
	if p := mustNew(t, plan.Spec{Samples: repeat(3, 1000), Shuffle: true}); p.Hash() != mustNew(t, plan.Spec{Samples: repeat(3, 1000), Shuffle: true, Window: 125, Partitions: 64}).Hash() {
		t.Error("a default has another hash than the same value given")
	}
}

// The Spec's slices stay the caller's.
func TestNewCopies(t *testing.T) {
	samples := []uint32{5, 6, 7}
	p := mustNew(t, plan.Spec{Samples: samples, Shuffle: true})
	samples[0] = 1000
	if n := len(walk(p.Epoch(0), p.Size(), 0)); n != 18 || p.Count(0) != 5 {
		t.Error("the plan changed with the caller's slice")
	}
}

// Counts at the edge of 32 bits, and more than 2^32 samples in all: positions and cursors still fit.
func TestHugeCounts(t *testing.T) {
	const most = math.MaxUint32
	p := mustNew(t, plan.Spec{Samples: []uint32{most, 3, most, most, 1}, Seed: 2, Shuffle: true, Window: 1})
	if p.Size() != 3*most+4 {
		t.Fatalf("size %d", p.Size())
	}
	e := p.Epoch(0)
	all := opens(e, 0) // one virtual chunk: no draws, so that this is quick
	var at int64
	for _, o := range all {
		if o.Position != at || o.Left != p.Count(o.Chunk) {
			t.Fatalf("%+v, want position %d", o, at)
		}
		at += int64(o.Left)
	}
	last := make([]plan.Pick, 10)
	if n := e.Walk(p.Size() - 7).Next(last); n != 7 || !last[6].Last {
		t.Fatalf("%d picks before the end: %v", n, last)
	}
	if c, k := p.Locate(2*most + 2); c != 2 || k != most-1 || p.Number(c, k) != 2*most+2 {
		t.Errorf("Locate: chunk %d, sample %d", c, k)
	}
	d := mustDeal(t, e, plan.World{Nodes: []int{3, 4}, BatchSize: 1000}, 5)
	if want := (p.Size()-5)/7000 + 1; d.Batches() != want || d.Samples(6) != (p.Size()-5+6)/7 {
		t.Errorf("%d batches, %d samples", d.Batches(), d.Samples(6))
	}
}
