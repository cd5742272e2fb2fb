package plan_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/plan"
)

// A range and the list of its numbers are the same subset.
func TestRangeEqualsList(t *testing.T) {
	for name, samples := range layouts {
		n := total(samples)
		if n > 200 {
			continue
		}
		for lo := range n + 1 {
			for hi := lo; hi <= n; hi++ {
				var numbers []int64
				for i := lo; i < hi; i++ {
					numbers = append(numbers, i)
				}
				a, b := plan.RangeSubset(samples, lo, hi), list(t, samples, numbers)
				if a.Hash() != b.Hash() {
					t.Fatalf("%s [%d, %d): the hashes differ", name, lo, hi)
				}
				checkSameSubset(t, samples, a, b)
			}
		}
	}
}

func checkSameSubset(t *testing.T, samples []uint32, a, b plan.Subset) {
	t.Helper()
	for c := range samples {
		id := plan.ChunkID(c)
		if a.Count(id) != b.Count(id) {
			t.Fatalf("chunk %d: %d and %d samples", c, a.Count(id), b.Count(id))
		}
		for k := range a.Count(id) {
			if a.Local(id, k) != b.Local(id, k) {
				t.Fatalf("chunk %d, sample %d: at %d and %d", c, k, a.Local(id, k), b.Local(id, k))
			}
		}
	}
}

func TestListSubset(t *testing.T) {
	samples := layouts["uneven"]
	r := rand.New(rand.NewPCG(5, 5))
	var want []int64
	for i := range total(samples) {
		if r.IntN(3) == 0 {
			want = append(want, i)
		}
	}
	s := list(t, samples, want)
	got := numbers(plan.Spec{Samples: samples, Subset: s})
	if len(got) != len(want) {
		t.Fatalf("%d numbers, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("number %d is %d, want %d", i, got[i], want[i])
		}
	}
	if s.Hash() == list(t, samples, want[1:]).Hash() {
		t.Error("another set has the same hash")
	}
}

func TestListSubsetRefuses(t *testing.T) {
	samples := []uint32{2, 0, 3}
	for _, numbers := range [][]int64{{-1}, {5}, {1, 1}, {2, 1}, {0, 1, 2, 3, 4, 5}} {
		if _, err := plan.ListSubset(samples, numbers); !errors.Is(err, fault.Of(fault.Invalid)) {
			t.Errorf("%v: %v", numbers, err)
		}
	}
	if s, err := plan.ListSubset(samples, nil); err != nil || s.Count(0)+s.Count(1)+s.Count(2) != 0 {
		t.Errorf("the empty list: %v", err)
	}
}

func TestRangeSubsetMovesBounds(t *testing.T) {
	samples := []uint32{2, 0, 3}
	if plan.RangeSubset(samples, -3, 99).Hash() != plan.RangeSubset(samples, 0, 5).Hash() {
		t.Error("bounds outside of the data set")
	}
	for _, s := range []plan.Subset{plan.RangeSubset(samples, 4, 2), plan.RangeSubset(samples, 9, 12), plan.RangeSubset(samples, -5, -1)} {
		if s.Count(0)+s.Count(1)+s.Count(2) != 0 {
			t.Error("an empty range has samples")
		}
	}
}
