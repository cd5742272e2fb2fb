// Package buffer owns the memory that samples live in: arenas of off-heap regions under one hard budget.
//
// It is for the engine: chunks land in one arena, assembled batches lie in another, and both draw on the same
// Budget, which counts pages that were really touched. Regions are refcounted; free ones lie in lists by size class
// and keep their pages, and who needs one gets that with about as many as it needs (a page fault here costs more than
// the copy into the page). When there is no room for more, free regions give pages back by hole punching.
//
// It never blocks: Alloc says no, and waiting (with deadlines and names) is the business of package resident and
// above. It knows nothing of chunks or samples.
//
// Why not the Go heap: the collector lets a 1 GiB heap arena take 2.2 GiB. Why memfd and MAP_SHARED: a private
// arena makes each fork cost a second and doubles memory, and other processes can be handed the file.
package buffer

import (
	"fmt"
	"math/bits"
	"sync"
)

// Page is the unit of accounting and the alignment of every region; direct reads need no more than it.
const Page = 4096

// Pages rounds n up to whole pages: what a region of n bytes takes from the budget.
func Pages(n int64) int64 { return (n + Page - 1) &^ (Page - 1) }

// Budget is the hard bound on touched bytes, shared by arenas. Safe for concurrent use; its lock guards its
// arenas as well, because making room in one means taking pages from another.
type Budget struct {
	mu     sync.Mutex
	limit  int64
	used   int64 // touched pages of all arenas, live or free, plus what was charged
	free   int64 // touched pages on free lists or beyond what their region needs, reclaimable at once
	peak   int64 // highest used
	arenas []*Arena
}

// NewBudget returns a budget of limit bytes.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit} }

// Limit is the bound in bytes.
func (b *Budget) Limit() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limit
}

// Grow raises the bound by n bytes.
func (b *Budget) Grow(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit += n
}

// Used is how many bytes are touched or charged right now.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Peak is the highest Used has been.
func (b *Budget) Peak() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.peak
}

// Charge counts n bytes that live outside the arenas (decode scratch), whether they fit or not: their owner will use
// them, so until they fit nothing is allocated. Whoever charges has made sure before that they will (node.Engine).
func (b *Budget) Charge(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.makeRoom(n)
	b.take(n)
}

// Discharge gives back what Charge counted.
func (b *Budget) Discharge(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.used < 0 {
		panic("buffer: more discharged than charged")
	}
}

// makeRoom punches free regions until n more bytes fit. Nothing is punched when that would not be enough.
// mu is held.
func (b *Budget) makeRoom(n int64) bool {
	over := b.used + n - b.limit
	if over <= 0 {
		return true
	}
	if over > b.free {
		return false
	}
	for _, a := range b.arenas {
		for r := a.smallest(); r != nil && over > 0; r = a.smallest() {
			keep := max(0, r.touched-over)
			over -= r.touched - keep
			a.punch(r, keep)
		}
	}
	for _, a := range b.arenas {
		over = a.cutSlack(over)
	}
	return over <= 0
}

func (b *Budget) take(n int64) {
	b.used += n
	b.peak = max(b.peak, b.used)
}

// classOf maps a size to its class: 16 classes between powers of two, so a region is at most 1/16 larger in
// address space than what it holds. Memory is counted by touched pages, so it loses nothing.
func classOf(size int64) int {
	p := max(1, Pages(size)/Page)
	if p <= 16 {
		return int(p - 1)
	}
	shift := bits.Len64(uint64(p-1)) - 5
	return shift*16 + int((p-1)>>shift)
}

// classSize is the address space of a region of class c.
func classSize(c int) int64 {
	if c < 16 {
		return int64(c+1) * Page
	}
	shift := c/16 - 1
	return int64(c-shift*16+1) << shift * Page
}

// Region is a piece of an arena, with one reference at birth. Its bytes are not zeroed. The owner of a reference
// may read and write; who passes it on calls Retain first.
type Region struct {
	arena   *Arena
	offset  int64
	class   int
	size    int64 // bytes asked for; 0 while free
	touched int64 // leading bytes that hold pages, whole pages
	refs    int32
}

// Bytes is the region's memory: as long as asked for, with room up to the whole page.
func (r *Region) Bytes() []byte {
	return r.arena.mem[r.offset : r.offset+r.size : r.offset+Pages(r.size)]
}

// Offset is where the region starts in the arena's file.
func (r *Region) Offset() int64 { return r.offset }

// Retain adds a reference.
func (r *Region) Retain() {
	b := r.arena.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.refs <= 0 {
		panic("buffer: retain of a released region")
	}
	r.refs++
}

// Release drops a reference; the last one makes the memory reusable. One release too many panics: somebody
// else's bytes would be overwritten.
func (r *Region) Release() {
	b := r.arena.budget
	b.mu.Lock()
	if r.refs <= 0 {
		b.mu.Unlock()
		panic(fmt.Sprintf("buffer: region at %d released twice", r.offset))
	}
	r.refs--
	if r.refs > 0 {
		b.mu.Unlock()
		return
	}
	unmap := r.arena.put(r)
	b.mu.Unlock()
	if unmap {
		r.arena.destroy()
	}
}
