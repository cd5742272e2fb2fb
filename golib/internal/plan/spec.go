package plan

import (
	"crypto/sha256"
	"encoding/binary"
	"math"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// The defaults and limits of window and partitions. They are functions of the data set alone: were they taken from the
// machine, the order would depend on it.
const (
	defaultPartitions = 64
	maxPartitions     = math.MaxUint16
	minDefaultWindow  = 16
	maxDefaultWindow  = 128
)

// Spec is everything that the order of an epoch depends on, but the epoch.
type Spec struct {
	Samples    []uint32 // samples stored in each chunk; 0 is allowed
	Seed       uint64
	Partitions int    // 0: 64; more than the window: the window
	Window     int    // 0: DefaultWindow; more than there are chunks: all of them
	Shuffle    bool   // false: stored order, and Seed, Partitions, Window, Sticky play no part
	Subset     Subset // nil: every sample
	Sticky     bool   // a chunk keeps its partition in all epochs
	Dataset    string // the data set's fingerprint; part of the hash, not of the order
}

// DefaultWindow returns the window of a plan that opens so many chunks in an epoch.
func DefaultWindow(chunks int) int {
	return min(chunks, maxDefaultWindow, max(minDefaultWindow, chunks/8))
}

func (s *Spec) check() error {
	if s.Window < 0 {
		return fault.New(fault.Invalid, "window is %d: it must be at least 1, or 0 for the default", s.Window)
	}
	if s.Partitions < 0 || s.Partitions > maxPartitions {
		return fault.New(fault.Invalid, "partitions is %d: it must be from 1 to %d, or 0 for the default", s.Partitions, maxPartitions)
	}
	if uint64(len(s.Samples)) > math.MaxUint32 {
		return fault.New(fault.Invalid, "plan: %d chunks are more than %d", len(s.Samples), uint32(math.MaxUint32))
	}
	return nil
}

// shape returns the window and the partitions that the Spec means for so many chunks.
// The stored order is one partition that has one chunk open.
func (s *Spec) shape(chunks int) (window, partitions int) {
	if !s.Shuffle {
		return 1, 1
	}
	window = s.Window
	if window == 0 {
		window = DefaultWindow(chunks)
	}
	window = min(window, chunks)
	partitions = s.Partitions
	if partitions == 0 {
		partitions = defaultPartitions
	}
	return window, min(partitions, window)
}

// computeHash hashes the inputs in their effective form, so that a default and the same value given by hand, or a
// range and the same numbers in a list, are one plan.
func (p *Plan) computeHash(dataset string) [32]byte {
	h := sha256.New()
	h.Write([]byte("redox/plan/1\x00"))
	var word [8]byte
	put := func(v uint64) {
		binary.LittleEndian.PutUint64(word[:], v)
		h.Write(word[:])
	}
	put(uint64(len(dataset)))
	h.Write([]byte(dataset))
	put(uint64(len(p.samples)))
	b := make([]byte, 0, 4096)
	for i, n := range p.samples {
		b = binary.LittleEndian.AppendUint32(b, n)
		if len(b) == cap(b) || i == len(p.samples)-1 {
			h.Write(b)
			b = b[:0]
		}
	}
	subset := wholeHash(p.samples)
	if p.subset != nil {
		subset = p.subset.Hash()
	}
	h.Write(subset[:])
	if p.shuffle {
		put(1)
		put(p.seed)
		put(uint64(p.partitions))
		put(uint64(p.window))
		put(bit(p.sticky))
	} else {
		put(0)
	}
	var sum [32]byte
	h.Sum(sum[:0])
	return sum
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
