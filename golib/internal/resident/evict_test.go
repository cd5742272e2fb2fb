package resident

import (
	"slices"
	"testing"

	"github.com/redox-loader/redox/golib/internal/buffer"
)

// TestSpare: of chunks that vary in size, a few places are left free once they do not all fit; where they do, or are of
// one size, all memory keeps chunks. However it is, one that needs all of it gets it.
func TestSpare(t *testing.T) {
	varied := make([]int, 200)
	for c := range varied {
		varied[c] = 1 + c%9
	}
	for name, it := range map[string]struct {
		samples []int
		share   int64 // of all chunks that there is memory for, one part
		spare   bool
	}{
		"varied":      {varied, 2, true},
		"all fit":     {varied, 1, false},
		"of one size": {slices.Repeat([]int{5}, 200), 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			total := newWorldOf(t, it.samples, 1<<20).set.sizes.total
			w := newWorldOf(t, it.samples, total/it.share)
			u := w.set.NewUser(nil, nil)
			for epoch := range int64(3) {
				for c := range it.samples {
					due := epoch*int64(len(it.samples)) + int64(c)
					u.Advance(due)
					k := w.take(t, u, uint32(c), due)
					landed(t, k)
					u.Drop(k, due+int64(len(it.samples)))
				}
			}
			spare := w.arena.Room() >= w.arena.Quota()/spareShare
			if evicted := w.set.Counters().Evicted; spare != it.spare && it.share > 1 || (evicted > 0) != (it.share > 1) {
				t.Errorf("%d of %d bytes are free; %d chunks were evicted", w.arena.Room(), w.arena.Quota(), evicted)
			}
			var held []*Chunk
			room := w.arena.Quota()
			for c := range it.samples {
				if room -= buffer.Pages(w.source.Room(uint32(c))); room >= 0 {
					held = append(held, w.take(t, u, uint32(c), 0)) // waits in vain if something is kept from it
				}
			}
			for _, k := range held {
				u.Drop(k, Never)
			}
		})
	}
}
