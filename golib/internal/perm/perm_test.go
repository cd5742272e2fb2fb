package perm_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/redox-loader/redox/golib/internal/perm"
)

// The test vectors of docs/plan.md. If one of these fails, orders that users have saved a place in are lost.
func TestVectors(t *testing.T) {
	check := func(what string, got, want any) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s = %v, want %v", what, got, want)
		}
	}
	check("Seed(test)", hex(perm.Seed("test")), "e048ebca0781ce18")
	check("Seed(test, 1, 2)", hex(perm.Seed("test", 1, 2)), "c42883d356761af6")
	check("Derive(1, 2)", hex(perm.Derive(1, 2)), "ae72313066e64cc0")

	// The first three are SplitMix64's published output for this seed.
	r := perm.New(1234567)
	check("Uint64", hex(r.Uint64(), r.Uint64(), r.Uint64()), "599ed017fb08fc85 2c73f08458540fa5 883ebce5a3f27c77")
	r = perm.New(1)
	var below []uint64
	for _, n := range []uint64{1, 2, 3, 10, 1000, 1 << 40, 1<<63 + 1, 1<<63 + 1} {
		below = append(below, r.Below(n))
	}
	check("Below", below, "[0 1 2 4 444 838811254672 7323326090023318475 3727553580931688368]")
	r = perm.New(1)
	s := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	perm.Shuffle(&r, s)
	check("Shuffle", s, "[9 0 1 4 8 2 3 7 6 5]")
	check("NewOrder(1, 1)", all(perm.NewOrder(1, 1)), "[0]")
	check("NewOrder(1, 10)", all(perm.NewOrder(1, 10)), "[9 0 1 4 8 2 3 7 6 5]")
	check("NewOrder(1, 16)", all(perm.NewOrder(1, 16)), "[6 0 15 1 3 7 14 2 4 10 8 12 5 13 11 9]")
	check("NewOrder(1, 17)", all(perm.NewOrder(1, 17)), "[8 4 13 10 7 0 6 14 11 2 15 1 16 12 5 9 3]")
	check("NewOrder(1, 32)", all(perm.NewOrder(1, 32))[:20], "[8 4 18 10 25 0 21 14 30 23 15 1 16 12 20 9 3 7 19 26]")
	check("NewOrder(1, 100)", all(perm.NewOrder(1, 100))[:20], "[59 64 54 6 19 47 43 49 71 50 29 40 82 38 68 48 91 10 44 5]")
	o := perm.NewOrder(1, math.MaxUint32)
	check("NewOrder(1, 2^32-1)", []uint32{o.At(0), o.At(1), o.At(1 << 31)}, "[3100710222 2116239448 3454947913]")
}

func hex(words ...uint64) (s string) {
	for i, w := range words {
		if i > 0 {
			s += " "
		}
		s += fmt.Sprintf("%016x", w)
	}
	return s
}

// all returns an order's numbers.
func all(o perm.Order) []uint32 {
	numbers := make([]uint32, o.Len())
	for k := range numbers {
		numbers[k] = o.At(uint32(k))
	}
	return numbers
}

func TestSeedSeparates(t *testing.T) {
	seen := map[uint64]bool{}
	for _, s := range []uint64{
		perm.Seed(""), perm.Seed("a"), perm.Seed("b"), perm.Seed("a", 0), perm.Seed("a", 0, 0), perm.Seed("a", 1),
		perm.Seed("a", 0, 1), perm.Seed("a", 1, 0), perm.Seed("a\x01"), perm.Seed("ab"),
	} {
		if seen[s] {
			t.Errorf("two inputs have the seed %x", s)
		}
		seen[s] = true
	}
	for seed := range uint64(100) {
		for n := range uint64(100) {
			s := perm.Derive(perm.Seed("x", seed), n)
			if seen[s] {
				t.Errorf("Derive gives %x twice", s)
			}
			seen[s] = true
		}
	}
}

func TestBelowIsUniform(t *testing.T) {
	const draws = 200_000
	for _, n := range []uint64{2, 3, 7, 64, 100} {
		r := perm.New(perm.Seed("below", n))
		counts := make([]int, n)
		for range draws {
			counts[r.Below(n)]++
		}
		checkUniform(t, fmt.Sprintf("Below(%d)", n), counts)
	}
	// Where rejection matters: 2^64 draws fall on 3/4 as many numbers, so that without it every third would come twice.
	r := perm.New(1)
	var residues [3]int
	for range draws {
		residues[r.Below(3<<62)%3]++
	}
	checkUniform(t, "Below(3 * 2^62) mod 3", residues[:])
}

func TestShuffleIsUniform(t *testing.T) {
	counts := map[string]int{}
	for seed := range uint64(48_000) {
		r := perm.New(perm.Seed("shuffle", seed))
		s := []int{0, 1, 2, 3}
		perm.Shuffle(&r, s)
		counts[fmt.Sprint(s)]++
	}
	if len(counts) != 24 {
		t.Fatalf("%d orders of 4 things", len(counts))
	}
	var list []int
	for _, n := range counts {
		list = append(list, n)
	}
	checkUniform(t, "orders of 4 things", list)
	r := perm.New(1)
	perm.Shuffle(&r, []int{})
	if perm.Shuffle(&r, []int{5}); r != perm.New(1) {
		t.Error("shuffling one thing draws numbers")
	}
}

// checkUniform is a chi-square test. Seeds are fixed, so that it can't fail by chance; 4.5 standard deviations is what
// a uniform source exceeds once in 100,000 times.
func checkUniform(t *testing.T, what string, counts []int) {
	t.Helper()
	if z := deviation(counts); math.Abs(z) > 4.5 {
		t.Errorf("%s: %.1f standard deviations from uniform", what, z)
	}
}

// deviation returns how far counts are from equal, in standard deviations of a normal distribution.
func deviation(counts []int) float64 {
	sum := 0
	for _, n := range counts {
		sum += n
	}
	expected := float64(sum) / float64(len(counts))
	chi := 0.0
	for _, n := range counts {
		chi += (float64(n) - expected) * (float64(n) - expected) / expected
	}
	// Wilson and Hilferty's transformation: the cube root of a chi-square is nearly normal, for few counts too.
	v := 2 / (9 * float64(len(counts)-1))
	return (math.Cbrt(chi/float64(len(counts)-1)) - (1 - v)) / math.Sqrt(v)
}

func isPermutation(numbers []uint32) bool {
	sorted := slices.Sorted(slices.Values(numbers))
	for i, n := range sorted {
		if n != uint32(i) {
			return false
		}
	}
	return true
}
