// Package perm is the randomness of the project: seeds made by hashing, a small generator of random numbers,
// shuffles, and permutations that need no memory. All of it is specified bit for bit in docs/plan.md, with test
// vectors, because the order of an epoch must be the same on every machine, in every version of Go and in every
// reimplementation; math/rand promises none of that.
//
// It is for package plan (the order of an epoch) and for package pack (the order of the samples on disk). It is
// not for secrets: the generator can be predicted from its output.
package perm

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
)

// seedPrefix keeps our hashes apart from anybody else's, and from ours of a later version.
const seedPrefix = "redox/perm/1"

// gamma is SplitMix64's step: 2^64 divided by the golden ratio, made odd.
const gamma = 0x9e3779b97f4a7c15

// Seed hashes a domain and some numbers into a seed. Different domains or numbers give unrelated seeds, so one user's
// seed can feed any number of generators without two of them ever walking in step, as seed+1, seed+2, … would.
// The domain must not contain a zero byte.
func Seed(domain string, words ...uint64) uint64 {
	b := make([]byte, 0, 128)
	b = append(b, seedPrefix...)
	b = append(b, 0)
	b = append(b, domain...)
	b = append(b, 0)
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	sum := sha256.Sum256(b)
	return binary.LittleEndian.Uint64(sum[:8])
}

// Derive makes the seed of one of many things (a chunk of a data set) out of the seed of them all. It is a hundred
// times cheaper than Seed and only for seeds that Seed made.
func Derive(seed, number uint64) uint64 {
	return mix(seed ^ mix(number*gamma+gamma))
}

// mix is the output function of SplitMix64, a bijection in which every input bit reaches every output bit.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Rand is a generator of random numbers: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). Eight bytes of state, about a
// nanosecond a number. Copying it copies its place in the sequence. Not for concurrent use.
type Rand struct{ state uint64 }

// New returns the generator of a seed.
func New(seed uint64) Rand { return Rand{seed} }

// Uint64 returns the next number.
func (r *Rand) Uint64() uint64 {
	r.state += gamma
	return mix(r.state)
}

// Below returns a number in [0, n), each with exactly the same probability (Lemire, "Fast random integer generation
// in an interval", 2019). n must not be 0.
func (r *Rand) Below(n uint64) uint64 {
	hi, lo := bits.Mul64(r.Uint64(), n)
	if lo < n {
		hi = r.reject(hi, lo, n)
	}
	return hi
}

// reject is the rare second half of Below: it throws away the products that would make some numbers more likely. Apart
// from Below so that Below stays small enough to be inlined.
func (r *Rand) reject(hi, lo, n uint64) uint64 {
	for threshold := -n % n; lo < threshold; {
		hi, lo = bits.Mul64(r.Uint64(), n)
	}
	return hi
}

// Shuffle puts s into a random order, each of the len(s)! with the same probability as far as 64 bits of seed can tell
// them apart (Fisher and Yates, from the end to the front).
func Shuffle[T any](r *Rand, s []T) {
	for i := len(s) - 1; i > 0; i-- {
		j := r.Below(uint64(i) + 1)
		s[i], s[j] = s[j], s[i]
	}
}
