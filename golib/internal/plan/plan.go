// Package plan is an epoch as data: which sample comes at which position, which chunk must be in memory by when, and
// which rank gets what. Everything in it is a function of a Spec and numbers: no I/O, no clock, no globals, so that
// every node computes the same and nobody has to be asked. Package node executes plans, docs/plan.md tells the
// algorithm in full, with the promises that the tests here hold.
//
// Read on in this order: spec.go (what an order depends on), epoch.go (how the chunks are dealt), stream.go (how one
// partition mixes its chunks), walk.go (the global order), opens.go (what to read next), deal.go (who gets what),
// mixing.go and simulate.go (how good it is).
//
// The package knows samples only by number. It does not know where chunks are stored, how large they are in bytes, or
// how much memory there is; the order must not depend on such things.
package plan

import (
	"encoding/hex"
	"math"
	"sort"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// ChunkID is the place of a chunk in the data set's chunk table.
type ChunkID uint32

// Plan is what all epochs of a run have in common. It is immutable; all methods may be called concurrently.
// Memory: 12 bytes a chunk, 16 with a subset, beside what the subset itself holds.
type Plan struct {
	seed       uint64
	partitions int
	window     int
	shuffle    bool
	sticky     bool
	subset     Subset // nil: every sample

	samples []uint32 // samples stored in each chunk
	counts  []uint32 // those of them that take part; the same slice without a subset
	first   []int64  // stored number of each chunk's first sample
	size    int64    // samples of an epoch
	chunks  int      // chunks that are opened in an epoch
	hash    [32]byte
}

// New checks a Spec, fills in its defaults and returns its plan. The Spec's slices are copied.
func New(spec Spec) (*Plan, error) {
	if err := spec.check(); err != nil {
		return nil, err
	}
	p := &Plan{
		seed:    spec.Seed,
		shuffle: spec.Shuffle,
		sticky:  spec.Sticky,
		subset:  spec.Subset,
		samples: append([]uint32(nil), spec.Samples...),
		first:   make([]int64, len(spec.Samples)),
	}
	stored := int64(0)
	for c, n := range p.samples {
		p.first[c] = stored
		if stored += int64(n); stored < 0 {
			return nil, fault.New(fault.Invalid, "plan: more than %d samples", int64(math.MaxInt64))
		}
	}
	if p.subset != nil && p.subset.Hash() == wholeHash(p.samples) {
		p.subset = nil
	}
	p.counts = p.samples
	if p.subset != nil {
		p.counts = make([]uint32, len(p.samples))
	}
	for c := range p.counts {
		if p.subset != nil {
			p.counts[c] = p.subset.Count(ChunkID(c))
		}
		if p.counts[c] > 0 {
			p.size += int64(p.counts[c])
			p.chunks++
		}
	}
	if p.size == 0 {
		return nil, fault.New(fault.Invalid, "plan: no samples: the data set has %d, the subset 0 of them", stored)
	}
	p.window, p.partitions = spec.shape(p.chunks)
	p.hash = p.computeHash(spec.Dataset)
	return p, nil
}

// Size returns the samples of an epoch.
func (p *Plan) Size() int64 { return p.size }

// Chunks returns how many chunks an epoch opens: those that have a sample in the subset.
func (p *Plan) Chunks() int { return p.chunks }

// Window returns how many chunks are open at once, at most, in the whole cluster.
func (p *Plan) Window() int { return p.window }

// Partitions returns into how many independent streams an epoch is cut, the units of ownership.
func (p *Plan) Partitions() int { return p.partitions }

// Hash returns, in hexadecimal, the hash of everything that the order depends on, but the epoch. Two plans with the
// same hash give the same order. Batch size and world are not in it: they cut the order, they don't change it.
func (p *Plan) Hash() string { return hex.EncodeToString(p.hash[:]) }

// Shuffled says whether the order is a shuffled one; if not, it is the stored one.
func (p *Plan) Shuffled() bool { return p.shuffle }

// Sticky says whether a chunk keeps its partition in all epochs.
func (p *Plan) Sticky() bool { return p.sticky }

// SubsetHash returns, in hexadecimal, the hash of the subset; "" if every sample takes part.
func (p *Plan) SubsetHash() string {
	if p.subset == nil {
		return ""
	}
	h := p.subset.Hash()
	return hex.EncodeToString(h[:])
}

// Count returns how many samples of a chunk take part in an epoch.
func (p *Plan) Count(c ChunkID) uint32 { return p.counts[c] }

// Number returns the stored number of a sample of a chunk.
func (p *Plan) Number(c ChunkID, sample uint32) int64 { return p.first[c] + int64(sample) }

// Locate is the inverse of Number. The number must be one of the data set's.
func (p *Plan) Locate(number int64) (ChunkID, uint32) {
	// The last chunk that begins at or before it: chunks without samples begin where the next one does.
	c := sort.Search(len(p.first), func(i int) bool { return p.first[i] > number }) - 1
	return ChunkID(c), uint32(number - p.first[c])
}
