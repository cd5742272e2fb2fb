package plan_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/redox-loader/redox/golib/internal/plan"
)

// layouts are samples per chunk, of every shape that a data set can have.
var layouts = map[string][]uint32{
	"one sample":   {1},
	"two samples":  {1, 1},
	"one chunk":    {97},
	"ones":         repeat(1, 61),
	"equal":        repeat(16, 40),
	"short last":   append(repeat(17, 33), 5),
	"prime":        append(repeat(10, 100), 9), // 1,009 samples
	"empty chunks": {0, 0, 7, 0, 30, 1, 0, 12, 12, 0, 3, 0},
	"one huge":     {3, 2, 900, 1, 4, 2, 2, 3},
	"uneven":       uneven(50, 60),
	"few":          {100, 101, 5},
}

func repeat(n uint32, times int) []uint32 { return slices.Repeat([]uint32{n}, times) }

func uneven(chunks int, most uint32) []uint32 {
	r := rand.New(rand.NewPCG(1, 2))
	sizes := make([]uint32, chunks)
	for i := range sizes {
		sizes[i] = r.Uint32N(most)
	}
	return sizes
}

func total(samples []uint32) (n int64) {
	for _, s := range samples {
		n += int64(s)
	}
	return n
}

func mustNew(t testing.TB, s plan.Spec) *plan.Plan {
	t.Helper()
	p, err := plan.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// walk returns the picks from a position to the end, taken in pieces of uneven length.
func walk(e *plan.Epoch, size, from int64) []plan.Pick {
	picks := make([]plan.Pick, size-from)
	w := e.Walk(from)
	for at, piece := 0, 1; at < len(picks); piece = piece*3%101 + 1 {
		at += w.Next(picks[at:min(len(picks), at+piece)])
	}
	return picks
}

// opens returns all openings from a position on.
func opens(e *plan.Epoch, from int64) (all []plan.Open) {
	o := e.Opens(from)
	for {
		next, ok := o.Next()
		if !ok {
			return all
		}
		all = append(all, next)
	}
}

// expectedOpens derives from a whole epoch's picks what opens must be from a position on.
func expectedOpens(picks []plan.Pick, from int64) (all []plan.Open) {
	at := map[plan.ChunkID]int{}
	for i, k := range picks[from:] {
		if _, ok := at[k.Chunk]; !ok {
			at[k.Chunk] = len(all)
			all = append(all, plan.Open{Position: from + int64(i), Chunk: k.Chunk, Partition: k.Partition})
		}
		all[at[k.Chunk]].Left++
	}
	return all
}

// froms returns positions to begin at: all of a small epoch, some of a larger one.
func froms(size int64) (all []int64) {
	if size <= 130 {
		for i := range size + 1 {
			all = append(all, i)
		}
		return all
	}
	r := rand.New(rand.NewPCG(3, uint64(size)))
	all = []int64{0, 1, size - 1, size}
	for range 12 {
		all = append(all, r.Int64N(size))
	}
	return all
}

// forSpecs runs a test for all layouts with many shapes, seeds and subsets.
func forSpecs(t *testing.T, test func(t *testing.T, s plan.Spec)) {
	for name, samples := range layouts {
		n := total(samples)
		var odd []int64
		for i := int64(1); i < n; i += 2 {
			odd = append(odd, i)
		}
		shapes := []plan.Spec{
			{Shuffle: true},
			{Shuffle: true, Seed: 1, Window: 1},
			{Shuffle: true, Seed: 2, Window: 5, Partitions: 1},
			{Shuffle: true, Seed: 3, Window: 7, Partitions: 3},
			{Shuffle: true, Seed: 1<<64 - 1, Window: 30, Partitions: 4, Sticky: true},
			{Shuffle: true, Seed: 4, Window: 1000, Partitions: 8},
			{Shuffle: true, Seed: 5, Window: 12, Partitions: 5, Subset: plan.RangeSubset(samples, n/3, n-n/4)},
			{Shuffle: true, Seed: 6, Window: 9, Partitions: 2, Sticky: true, Subset: list(t, samples, odd)},
			{},
			{Subset: plan.RangeSubset(samples, n/5, n)},
			{Subset: list(t, samples, odd)},
		}
		for i, s := range shapes {
			s.Samples = samples
			if s.Subset != nil && count(s) == 0 {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", name, i), func(t *testing.T) { test(t, s) })
		}
	}
}

func list(t testing.TB, samples []uint32, numbers []int64) plan.Subset {
	t.Helper()
	s, err := plan.ListSubset(samples, numbers)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// numbers returns the stored numbers that take part in a Spec, ascending.
func numbers(s plan.Spec) (all []int64) {
	first := int64(0)
	for c, n := range s.Samples {
		for k := range n {
			if s.Subset == nil {
				all = append(all, first+int64(k))
			} else if k < s.Subset.Count(plan.ChunkID(c)) {
				all = append(all, first+int64(s.Subset.Local(plan.ChunkID(c), k)))
			}
		}
		first += int64(n)
	}
	return all
}

func count(s plan.Spec) int { return len(numbers(s)) }
