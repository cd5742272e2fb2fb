// Package resident is the set of chunks in memory. It is for package node: a run takes the chunks it is about to
// need, in the order in which it needs them, and drops each when it is used up.
//
// A taken chunk is pinned: it stays until every run that took it dropped it. What is not pinned is cache: it stays
// while nobody needs the room, and the chunk whose next use is farthest away goes first. As a run takes chunks in
// the order of need, everything it has not taken yet is used later than what it takes now, so a chunk that is used
// sooner is never given up for one that is used later (Belady's rule; the plan makes it exact, not a guess).
//
// A chunk is landed once, however many wait for it, and checked when it lands: header, table and payload. It does not
// decide what to read: that is the run's plan. It knows no samples beyond the chunk's own table.
package resident

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redox-loader/redox/golib/internal/buffer"
	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/store"
)

// Never is the next use of a chunk that nobody will use.
const Never = math.MaxInt64

// Set is the chunks of one data set in memory, shared by the runs of an engine. Safe for concurrent use.
type Set struct {
	source store.Source
	queue  *store.Queue
	arena  *buffer.Arena
	layout *chunk.Layout
	index  *chunk.Index
	sizes  sizes

	evicted, rereads atomic.Int64

	mu      sync.Mutex
	chunks  map[uint32]*Chunk // landing, landed or cached; not failed ones
	users   []*User
	orphans farthest // cached chunks that no user will use
	cached  int64    // bytes of unpinned chunks
	changed chan struct{}
	changes uint64 // how often it was renewed
	waiters int    // in Take, on changed
	closed  bool
}

// New returns an empty set. Its chunks lie in the arena, whose quota bounds them.
func New(source store.Source, queue *store.Queue, arena *buffer.Arena, layout *chunk.Layout, index *chunk.Index) *Set {
	return &Set{
		source: source, queue: queue, arena: arena, layout: layout, index: index, sizes: sizesOf(source, index),
		chunks: map[uint32]*Chunk{}, changed: make(chan struct{}),
	}
}

// Counters count what the set did.
type Counters struct {
	Evicted int64 // chunks given up for others
	Rereads int64 // chunks read again because a checksum was wrong
}

// Counters returns the counts so far.
func (s *Set) Counters() Counters {
	return Counters{s.evicted.Load(), s.rereads.Load()}
}

// User is one run's view of the set: what it holds, and where it is on its own timeline of positions, which goes on
// from epoch to epoch.
type User struct {
	set *Set
	now atomic.Int64
	// next tells when this run uses a chunk that it does not hold, on its timeline. Called with the set's lock held.
	next   func(chunk uint32) int64
	cached farthest // unpinned chunks that this run uses before any other does; guarded by set.mu
	share  int64    // bytes it may pin
	pinned int64    // bytes of the chunks that it holds
	// stuck is called when a Take has found no memory and waits for it; see Tight.
	stuck func()

	blocked      atomic.Pointer[Block]
	landed, hits atomic.Int64
}

// Block says what a Take waits for.
type Block struct {
	Chunk  uint32
	Due    int64
	Since  time.Time
	looked uint64 // Set.changes when it looked last; guarded by set.mu
}

// NewUser adds a run. next may be nil if nothing is known, and so may stuck.
func (s *Set) NewUser(next func(chunk uint32) int64, stuck func()) *User {
	if next == nil {
		next = func(uint32) int64 { return Never }
	}
	if stuck == nil {
		stuck = func() {}
	}
	u := &User{set: s, next: next, stuck: stuck, share: math.MaxInt64}
	s.mu.Lock()
	s.users = append(s.users, u)
	s.mu.Unlock()
	return u
}

// SetShare bounds how many bytes the run may pin. What it holds beyond that is its own to drop.
func (u *User) SetShare(bytes int64) {
	s := u.set
	s.mu.Lock()
	defer s.mu.Unlock()
	u.share = bytes
	s.wake()
}

// Over is how many bytes the run holds beyond its share.
func (u *User) Over() int64 {
	u.set.mu.Lock()
	defer u.set.mu.Unlock()
	return u.pinned - u.share
}

// Pinned is how many bytes the run holds.
func (u *User) Pinned() int64 {
	u.set.mu.Lock()
	defer u.set.mu.Unlock()
	return u.pinned
}

// Advance tells where the run is now: what is due before is needed at once.
func (u *User) Advance(now int64) {
	u.now.Store(now)
	s := u.set
	s.mu.Lock()
	if s.waiters > 0 {
		s.wake()
	}
	s.mu.Unlock()
}

// Now is where the run is, as it told by Advance.
func (u *User) Now() int64 { return u.now.Load() }

// Taken counts the chunks that were read for this run, and those that were in memory when it took them.
func (u *User) Taken() (landed, hits int64) { return u.landed.Load(), u.hits.Load() }

// Blocked tells what the run's Take waits for, or nil.
func (u *User) Blocked() *Block { return u.blocked.Load() }

// Tight is Blocked, but nil while something has changed since the Take looked for memory: it may have it in a moment.
func (u *User) Tight() *Block {
	u.set.mu.Lock()
	defer u.set.mu.Unlock()
	if b := u.blocked.Load(); b != nil && b.looked == u.set.changes {
		return b
	}
	return nil
}

// Take pins a chunk that is needed at due, and has it landed if it is not in memory. It returns as soon as the
// memory for it is found, which is when the chunk may still be on its way (see Chunk.Wait); until then it waits for
// chunks to be dropped. Runs take in order of due, so that no wait here holds up a chunk that is needed sooner.
// read says that it was not in memory.
func (u *User) Take(ctx context.Context, id uint32, due int64) (c *Chunk, read bool, err error) {
	c, read, err = u.await(ctx, id, due)
	switch {
	case err != nil:
	case read:
		u.landed.Add(1)
		c.submit(due - u.now.Load())
	default:
		u.hits.Add(1)
	}
	return c, read, err
}

// await is Take without the reading.
func (u *User) await(ctx context.Context, id uint32, due int64) (c *Chunk, read bool, err error) {
	s := u.set
	var mine *Block
	s.mu.Lock()
	defer func() {
		if mine != nil {
			u.blocked.CompareAndSwap(mine, nil)
			s.wake() // a Take of another pass of this run may wait, too, and tells it from now on
		}
		s.mu.Unlock()
	}()
	for {
		if s.closed {
			return nil, false, fault.New(fault.Canceled, "the engine was closed")
		}
		if c, read = u.find(id, due); c != nil {
			return c, read, nil
		}
		changed := s.changed
		s.waiters++
		if b := u.blocked.Load(); b == nil || b.Due > due {
			if mine == nil {
				mine = &Block{Chunk: id, Due: due, Since: time.Now()}
			}
			u.blocked.Store(mine)
		}
		if mine != nil {
			mine.looked = s.changes
		}
		s.mu.Unlock()
		u.stuck()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		s.mu.Lock()
		s.waiters--
		if ctx.Err() != nil {
			return nil, false, context.Cause(ctx)
		}
	}
}

// find pins a chunk that is in memory, or one that is to be read into memory found for it; nil if there is none within
// the run's share. set.mu is held.
func (u *User) find(id uint32, due int64) (c *Chunk, read bool) {
	s := u.set
	room := s.source.Room(id)
	pages := buffer.Pages(room)
	if u.pinned+pages > u.share {
		return nil, false
	}
	if c = s.chunks[id]; c != nil {
		s.pin(c)
		u.pinned += pages
		return c, false
	}
	s.leaveSpare(pages, due-u.now.Load())
	for {
		if region := s.arena.Alloc(room); region != nil {
			c = &Chunk{set: s, id: id, region: region, pins: 1, done: make(chan struct{}), asked: time.Now()}
			s.chunks[id] = c
			u.pinned += pages
			return c, true
		}
		if s.arena.Room()+s.cached < pages || !s.evict(due-u.now.Load()) {
			return nil, false
		}
	}
}

// Drop gives a pinned chunk back; next is when this run uses it again, on its timeline.
func (u *User) Drop(c *Chunk, next int64) {
	s := u.set
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.pins <= 0 {
		panic(fmt.Sprintf("resident: chunk %d dropped twice", c.id))
	}
	c.pins--
	u.pinned -= buffer.Pages(s.source.Room(c.id))
	if c.pins == 0 {
		s.settle(c, u, next)
	}
	s.wake()
}

// settle makes an unpinned chunk cache, or frees it. mu is held.
func (s *Set) settle(c *Chunk, dropper *User, next int64) {
	switch {
	case !c.Ready():
		c.dropper, c.next = dropper, next
		return // its reader settles it
	case s.closed || s.chunks[c.id] != c: // failed or damaged ones were taken out when they arrived
		c.region.Release()
		if s.chunks[c.id] == c {
			delete(s.chunks, c.id)
		}
		return
	}
	var soonest *User
	best := int64(Never)
	for _, u := range s.users {
		when := next
		if u != dropper {
			when = u.next(c.id)
		}
		if when == Never {
			continue
		}
		if away := when - u.now.Load(); soonest == nil || away < best {
			soonest, best, c.next = u, away, when
		}
	}
	s.cached += buffer.Pages(s.source.Room(c.id))
	if soonest == nil {
		c.next = Never
		c.heap = &s.orphans
	} else {
		c.heap = &soonest.cached
	}
	c.heap.push(c)
}

// pin takes a chunk out of the cache, if it is there. mu is held.
func (s *Set) pin(c *Chunk) {
	c.pins++
	if c.heap != nil {
		c.heap.remove(c)
		c.heap = nil
		s.cached -= buffer.Pages(s.source.Room(c.id))
	}
}

// wake lets every blocked Take look again. mu is held.
func (s *Set) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
	s.changes++
}

// Rekey asks the run anew when it uses what is cached: its plan has changed (another epoch).
func (u *User) Rekey() {
	s := u.set
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.chunks {
		if c.heap != nil {
			s.pin(c)
			c.pins--
			s.settle(c, u, u.next(c.id))
		}
	}
}

// Close removes the run. It must have dropped what it took. What is cached stays for other runs.
func (u *User) Close() {
	s := u.set
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, x := range s.users {
		if x == u {
			s.users = append(s.users[:i:i], s.users[i+1:]...)
			break
		}
	}
	for len(u.cached) > 0 {
		c := u.cached[0]
		s.pin(c)
		c.pins--
		s.settle(c, nil, Never)
	}
	s.wake()
}

// Shrink evicts cached chunks until at most quota bytes are in use, as far as pins allow.
func (s *Set) Shrink(quota int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.arena.Live() > quota && s.evict(0) {
	}
}

// Close frees what nobody holds; chunks still pinned or on their way are freed when they are given back.
func (s *Set) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for id, c := range s.chunks {
		if c.pins > 0 || !c.Ready() {
			continue
		}
		if c.heap != nil {
			s.pin(c)
			c.pins--
		}
		delete(s.chunks, id)
		c.region.Release()
	}
	s.wake()
}
