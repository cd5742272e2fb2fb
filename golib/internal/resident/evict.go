package resident

import (
	"math"

	"github.com/redox-loader/redox/golib/internal/buffer"
	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/store"
)

// Where chunks vary in size, one that lands in the place of another needs pages that this did not have, and a page that
// the system gives anew costs more than reading into it. So a part of the memory is left free, once there is not enough
// for all chunks: then there are several places to choose from, and one of about the right size among them.
const (
	spareShare = 16 // of the quota, one part
	// leastVariation is the mean deviation of sizes by their mean from which on it pays, as one part of so many.
	leastVariation = 64
)

// sizes is what a set knows of the sizes of all its chunks.
type sizes struct {
	total  int64
	varied bool
}

func sizesOf(source store.Source, index *chunk.Index) sizes {
	n := int64(len(index.Entries))
	if n == 0 {
		return sizes{}
	}
	s := sizes{}
	for c := range index.Entries {
		s.total += buffer.Pages(source.Room(uint32(c)))
	}
	deviation := int64(0)
	for c := range index.Entries {
		off := buffer.Pages(source.Room(uint32(c))) - s.total/n
		deviation += max(off, -off)
	}
	s.varied = deviation > s.total/leastVariation
	return s
}

// leaveSpare evicts chunks until there is some room beyond the pages that are needed now, as far as that is of use and
// only what is used later. mu is held.
func (s *Set) leaveSpare(pages, away int64) {
	quota := s.arena.Quota()
	if !s.sizes.varied || s.sizes.total <= quota || s.evicted.Load() == 0 {
		return
	}
	for s.cached > 0 && s.arena.Room() < pages+quota/spareShare && s.evict(away) {
	}
}

// evict frees the cached chunk whose next use is farthest away, if that is after a chunk needed in so many positions;
// one that is needed now goes before all. mu is held.
func (s *Set) evict(away int64) bool {
	var victim *Chunk
	if len(s.orphans) > 0 {
		victim = s.orphans[0]
	} else {
		farthest := int64(math.MinInt64)
		for _, u := range s.users {
			if len(u.cached) == 0 {
				continue
			}
			c := u.cached[0]
			if d := c.next - u.now.Load(); d > farthest {
				victim, farthest = c, d
			}
		}
		// With one run the victim is used later by construction; the estimates of several may say otherwise.
		if victim == nil || len(s.users) > 1 && away > 0 && farthest < away {
			return false
		}
	}
	s.pin(victim)
	victim.pins--
	delete(s.chunks, victim.id)
	victim.region.Release()
	s.evicted.Add(1)
	return true
}
