package perm_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/redox-loader/redox/golib/internal/perm"
)

func TestOrderIsPermutation(t *testing.T) {
	for n := range uint32(300) {
		for seed := range uint64(20) {
			if o := perm.NewOrder(seed, n); o.Len() != n || !isPermutation(all(o)) {
				t.Fatalf("NewOrder(%d, %d) is no permutation: %v", seed, n, all(o))
			}
		}
	}
	for _, n := range []uint32{1023, 1024, 1025, 65535, 65536, 65537, 1_000_003} {
		if !isPermutation(all(perm.NewOrder(uint64(n), n))) {
			t.Fatalf("NewOrder(%d, %d) is no permutation", n, n)
		}
	}
}

// At the largest sizes not all numbers can be listed; those that are must be in range and differ.
func TestOrderOfHugeRange(t *testing.T) {
	for _, n := range []uint32{1<<31 - 1, 1 << 31, 1<<31 + 1, math.MaxUint32} {
		o := perm.NewOrder(5, n)
		seen := map[uint32]bool{}
		for k := range uint32(100_000) {
			x := o.At(k * (n / 100_000))
			if x >= n || seen[x] {
				t.Fatalf("n = %d: number %d is %d", n, k, x)
			}
			seen[x] = true
		}
	}
}

// Few numbers are shuffled exactly: every order of up to 5 is as likely as any other.
func TestOrderOfFewIsUniform(t *testing.T) {
	orders := 1
	for n := uint32(2); n <= 5; n++ {
		orders *= int(n)
		counts := map[string]int{}
		for seed := range uint64(1000 * orders) {
			counts[fmt.Sprint(all(perm.NewOrder(perm.Derive(perm.Seed("few"), seed), n)))]++
		}
		list := make([]int, 0, orders)
		for _, c := range counts {
			list = append(list, c)
		}
		if len(list) != orders {
			t.Fatalf("%d orders of %d numbers, want %d", len(list), n, orders)
		}
		checkUniform(t, fmt.Sprintf("orders of %d numbers", n), list)
	}
}

// For more numbers, what can be seen of the distribution must be that of a uniform shuffle: where a number goes, how
// numbers that stood at some distance stand to each other afterwards, and whether the permutation is odd or even. Powers
// of two and distances of half and a quarter of them are where multiplication modulo a power of two is weakest.
func TestOrderIsUniform(t *testing.T) {
	const seeds = 30_000
	for _, n := range []uint32{6, 16, 17, 24, 31, 32, 33, 64, 100, 128} {
		places := make([]int, n*n)
		distances := []uint32{1, 2, 3, n / 4, n / 2}
		moved := make([][]int, len(distances))
		for i := range moved {
			moved[i] = make([]int, n)
		}
		parity := make([]int, 2)
		for seed := range uint64(seeds) {
			numbers := all(perm.NewOrder(perm.Derive(perm.Seed("order"), seed), n))
			for k, x := range numbers {
				places[uint32(k)*n+x]++
			}
			k := uint32(seed) % n // one pair a seed: pairs of one permutation depend on each other
			for i, d := range distances {
				moved[i][(numbers[(k+d)%n]+n-numbers[k])%n]++
			}
			parity[odd(numbers)]++
		}
		checkUniform(t, fmt.Sprintf("n = %d: places", n), places)
		for i, d := range distances {
			checkUniform(t, fmt.Sprintf("n = %d: distance after %d", n, d), moved[i][1:])
		}
		checkUniform(t, fmt.Sprintf("n = %d: parity", n), parity)
	}
}

// odd returns the parity of a permutation: n minus its number of cycles.
func odd(numbers []uint32) int {
	seen := make([]bool, len(numbers))
	cycles := 0
	for k := range numbers {
		if !seen[k] {
			cycles++
		}
		for j := uint32(k); !seen[j]; j = numbers[j] {
			seen[j] = true
		}
	}
	return (len(numbers) - cycles) % 2
}

func BenchmarkOrder(b *testing.B) {
	for _, n := range []uint32{10, 76, 390, 512, 513, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			o := perm.NewOrder(1, n)
			k, sum := uint32(0), uint32(0)
			for b.Loop() {
				sum += o.At(k)
				if k++; k == n {
					k = 0
				}
			}
			_ = sum
		})
	}
}

func BenchmarkNewOrder(b *testing.B) {
	for _, n := range []uint32{10, 390} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			seed := uint64(0)
			for b.Loop() {
				o := perm.NewOrder(seed, n)
				seed += uint64(o.At(0)) + 1
			}
		})
	}
}
