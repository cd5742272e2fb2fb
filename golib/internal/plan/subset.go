package plan

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// Subset says which samples of the data set take part. Implementations are immutable and safe for concurrent use.
type Subset interface {
	// Count returns how many samples of a chunk take part.
	Count(c ChunkID) uint32
	// Local returns the place in the chunk, as stored, of its k-th sample that takes part, in ascending order.
	Local(c ChunkID, k uint32) uint32
	// Hash identifies the set of stored numbers, however it is represented.
	Hash() [32]byte
}

var (
	_ Subset = (*rangeSubset)(nil)
	_ Subset = (*listSubset)(nil)
)

// RangeSubset returns the samples with stored numbers in [lo, hi), of chunks with so many samples each. Bounds outside
// of the data set are moved to its ends; a range without samples is found by New.
func RangeSubset(samples []uint32, lo, hi int64) Subset {
	s := &rangeSubset{samples: slices.Clone(samples)}
	s.lo = max(0, lo)
	s.hi = max(s.lo, min(hi, total(samples)))
	var first int64
	for c, n := range samples {
		end := first + int64(n)
		if from, to := max(first, s.lo), min(end, s.hi); from < to {
			if s.end == 0 {
				s.begin = ChunkID(c)
				s.skip = uint32(from - first)
			}
			s.end = uint64(c) + 1
			s.last = uint32(to - max(first, s.lo))
		}
		first = end
	}
	return s
}

// rangeSubset is a run of stored numbers: only its first and its last chunk take part in part.
type rangeSubset struct {
	lo, hi  int64
	samples []uint32
	begin   ChunkID // first chunk that takes part
	end     uint64  // last chunk that takes part, plus one; 0: none
	skip    uint32  // samples of the first one that come before lo
	last    uint32  // samples of the last one that take part
}

func (s *rangeSubset) Count(c ChunkID) uint32 {
	switch {
	case c < s.begin || uint64(c) >= s.end:
		return 0
	case uint64(c) == s.end-1:
		return s.last
	case c == s.begin:
		return s.samples[c] - s.skip
	}
	return s.samples[c]
}

func (s *rangeSubset) Local(c ChunkID, k uint32) uint32 {
	if c == s.begin {
		return k + s.skip
	}
	return k
}

func (s *rangeSubset) Hash() [32]byte {
	r := newRuns()
	r.add(s.lo, s.hi)
	return r.sum()
}

// ListSubset returns the samples with these stored numbers, which must ascend. It keeps 4 bytes a number and 8 a chunk.
func ListSubset(samples []uint32, numbers []int64) (Subset, error) {
	s := &listSubset{begins: make([]int, len(samples)+1), locals: make([]uint32, len(numbers))}
	r := newRuns()
	chunk, first := 0, int64(0)
	for i, number := range numbers {
		if i > 0 && number <= numbers[i-1] {
			return nil, fault.New(fault.Invalid, "subset: numbers must ascend without repetition, but %d comes after %d", number, numbers[i-1])
		}
		for chunk < len(samples) && number >= first+int64(samples[chunk]) {
			first += int64(samples[chunk])
			chunk++
			s.begins[chunk] = i
		}
		if number < 0 || chunk == len(samples) {
			return nil, fault.New(fault.Invalid, "subset: there is no sample %d: the data set has %d", number, total(samples))
		}
		s.locals[i] = uint32(number - first)
		r.add(number, number+1)
	}
	for chunk < len(samples) {
		chunk++
		s.begins[chunk] = len(numbers)
	}
	s.hash = r.sum()
	return s, nil
}

// listSubset is any set of stored numbers.
type listSubset struct {
	begins []int    // where each chunk's numbers begin in locals, and the end
	locals []uint32 // places in their chunks
	hash   [32]byte
}

func (s *listSubset) Count(c ChunkID) uint32 { return uint32(s.begins[c+1] - s.begins[c]) }

func (s *listSubset) Local(c ChunkID, k uint32) uint32 { return s.locals[s.begins[c]+int(k)] }

func (s *listSubset) Hash() [32]byte { return s.hash }

// runs hashes a set of numbers as its maximal runs, which are the same for every representation of the set.
type runs struct {
	h      hash.Hash
	lo, hi int64 // the run that is not yet written
}

func newRuns() *runs {
	r := &runs{h: sha256.New()}
	r.h.Write([]byte("redox/subset/1\x00"))
	return r
}

// add appends the numbers of [lo, hi), which come after all earlier ones.
func (r *runs) add(lo, hi int64) {
	if lo != r.hi {
		r.flush()
		r.lo = lo
	}
	r.hi = hi
}

func (r *runs) flush() {
	if r.lo == r.hi {
		return
	}
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], uint64(r.lo))
	binary.LittleEndian.PutUint64(b[8:], uint64(r.hi))
	r.h.Write(b[:])
	r.lo = r.hi
}

func (r *runs) sum() (sum [32]byte) {
	r.flush()
	r.h.Sum(sum[:0])
	return sum
}

// wholeHash is the hash of the subset that is everything.
func wholeHash(samples []uint32) [32]byte {
	r := newRuns()
	r.add(0, total(samples))
	return r.sum()
}

func total(samples []uint32) (n int64) {
	for _, s := range samples {
		n += int64(s)
	}
	return n
}
