package perm

import "math/bits"

const (
	rounds = 6 // with 4 or 5, tests of neighbours see that this is no uniform shuffle (docs/plan.md has the numbers)
	// packed is the largest n whose whole permutation fits one word, four bits a number.
	packed = 16
)

// Order is a permutation of [0, n) that is computed, not stored: the k-th number costs about ten nanoseconds, whatever
// n is, and the whole takes 56 bytes. Package plan keeps one for every open chunk, so that a window of chunks with a
// million samples each costs no more memory than one of chunks with ten.
//
// It follows Kensler ("Correlated multi-jittered sampling", Pixar 2013): rounds of invertible steps (multiply, add,
// xor with the own upper half) on the next power of two, repeated while the result lies outside of [0, n). His
// constants shift by fixed distances, which leaves orders of few numbers poorly mixed; here the distance is half of the
// bits, the multipliers come from the seed, and up to 16 numbers are shuffled exactly.
//
// It is a value without pointers; concurrent use is fine. The zero Order is that of no numbers.
type Order struct {
	key   [rounds]uint64 // multiplier (low half, odd) and addend (high half) of each round; or the packed permutation
	n     uint32
	width uint8 // bits of the largest number
	shift uint8 // half of them, rounded up
}

// NewOrder returns the permutation of [0, n) that belongs to a seed.
func NewOrder(seed uint64, n uint32) Order {
	o := Order{n: n}
	r := New(seed)
	if n <= packed {
		o.key[0] = packedShuffle(&r, n)
		return o
	}
	for i := range o.key {
		o.key[i] = r.Uint64() | 1
	}
	o.width = uint8(bits.Len32(n - 1))
	o.shift = (o.width + 1) / 2
	return o
}

// packedShuffle is Shuffle on the numbers 0…n-1, kept in one word with four bits each.
func packedShuffle(r *Rand, n uint32) uint64 {
	word := uint64(0xfedcba9876543210)
	for i := uint64(n); i > 1; i-- {
		a, b := 4*(i-1), 4*r.Below(i)
		diff := (word>>a ^ word>>b) & 0xf
		word ^= diff<<a | diff<<b
	}
	return word
}

// Len returns n.
func (o *Order) Len() uint32 { return o.n }

// At returns the k-th number of the order; k must be below n.
func (o *Order) At(k uint32) uint32 {
	if o.n <= packed {
		return uint32(o.key[0]>>(4*(k&15))) & 0xf
	}
	mask := ^uint32(0) >> ((32 - o.width) & 31)
	shift := o.shift & 31
	for {
		for i := range o.key {
			k = (k*uint32(o.key[i]) + uint32(o.key[i]>>32)) & mask
			k ^= k >> shift
		}
		if k < o.n {
			return k
		}
	}
}
