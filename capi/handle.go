package main

import (
	"sync"
	"time"
)

// A handle is what C holds instead of a Go pointer: the kind of its table, a generation and an index, so that a
// handle that was closed, or belongs to something else, or was made up, is noticed and never followed.
//
//	bits 63-60 kind (1-15) | 59-20 generation (from 1) | 19-0 index
const (
	indexBits      = 20
	generationBits = 40
	maxIndex       = 1<<indexBits - 1
	generationMask = 1<<generationBits - 1
)

// wakeEvery is how often take wakes the calls that hold it up. Once is not enough: a call that took its reference
// just before may begin to wait just after.
const wakeEvery = 2 * time.Millisecond

// table maps handles to values. Calls in flight hold references, so that closing a value under a call of another
// thread waits for that call instead of pulling the value from under it.
type table[T any] struct {
	kind uint64

	mu      sync.Mutex
	entries []*entry[T]
	free    []int // indices of entries without a value
}

// entry is one place of a table; all its fields are guarded by the table's mu.
type entry[T any] struct {
	value      T
	generation uint64
	open       bool
	refs       int           // calls in flight
	drained    chan struct{} // closed when the last of them ends after open became false; nil before
}

func newTable[T any](kind uint64) *table[T] { return &table[T]{kind: kind} }

// add gives a value its handle. ok is false when the table is full.
func (t *table[T]) add(v T) (h uint64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var i int
	if n := len(t.free); n > 0 {
		i, t.free = t.free[n-1], t.free[:n-1]
	} else if i = len(t.entries); i > maxIndex {
		return 0, false
	} else {
		t.entries = append(t.entries, new(entry[T]))
	}
	e := t.entries[i]
	if e.generation = (e.generation + 1) & generationMask; e.generation == 0 {
		e.generation = 1
	}
	e.value, e.open, e.drained = v, true, nil
	return t.kind<<(indexBits+generationBits) | e.generation<<indexBits | uint64(i), true
}

// find returns the open entry of a handle, or nil. mu is held.
func (t *table[T]) find(h uint64) *entry[T] {
	i := h & maxIndex
	if h>>(indexBits+generationBits) != t.kind || i >= uint64(len(t.entries)) {
		return nil
	}
	if e := t.entries[i]; e.open && e.generation == h>>indexBits&generationMask {
		return e
	}
	return nil
}

// get returns the value of a handle and holds it until put. ok is false for a stale handle.
func (t *table[T]) get(h uint64) (v T, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.find(h)
	if e == nil {
		return v, false
	}
	e.refs++
	return e.value, true
}

// put ends a get. The handle may have been closed in between.
func (t *table[T]) put(h uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[h&maxIndex]
	e.refs--
	if e.refs == 0 && e.drained != nil {
		close(e.drained)
	}
}

// take makes a handle stale and returns its value, once no call holds it any more. Until then it calls wake (if not
// nil) again and again, which must make those calls return. ok is false if the handle was stale already; of several
// threads that take the same handle one gets it.
func (t *table[T]) take(h uint64, wake func(T)) (v T, ok bool) { return t.takeWithin(h, wake, 0) }

// leaveAfter is how long takeWithin waits where a call may hang in a write that never returns.
const leaveAfter = time.Second

// takeWithin is take for values whose calls may hang in storage: after limit (0: none) it leaves those behind. The place
// in the table is used again when they have returned.
func (t *table[T]) takeWithin(h uint64, wake func(T), limit time.Duration) (v T, ok bool) {
	t.mu.Lock()
	e := t.find(h)
	if e == nil {
		t.mu.Unlock()
		return v, false
	}
	v, e.open = e.value, false
	var drained chan struct{}
	if e.refs > 0 {
		drained = make(chan struct{})
		e.drained = drained
	}
	t.mu.Unlock()

	if drained != nil && !wait(drained, limit, func() {
		if wake != nil {
			wake(v)
		}
	}) {
		go func() { // lives as long as the call that hangs
			<-drained
			t.vacate(e, h)
		}()
		return v, true
	}
	t.vacate(e, h)
	return v, true
}

// vacate makes the place of a stale handle free.
func (t *table[T]) vacate(e *entry[T], h uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var none T
	e.value = none
	t.free = append(t.free, int(h&maxIndex))
}

// wait calls wake until drained is closed; false: the limit is over.
func wait(drained <-chan struct{}, limit time.Duration, wake func()) bool {
	var over <-chan time.Time
	if limit > 0 {
		over = time.After(limit)
	}
	tick := time.NewTicker(wakeEvery)
	defer tick.Stop()
	for {
		wake()
		select {
		case <-drained:
			return true
		case <-over:
			return false
		case <-tick.C:
		}
	}
}

// size is how many handles are open.
func (t *table[T]) size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, e := range t.entries {
		if e.open {
			n++
		}
	}
	return n
}

// opened puts a new value into its table and its handle where the caller wants it.
func opened[T any, H ~uint64](t *table[T], v T, out *H, discard func(T)) error {
	h, ok := t.add(v)
	if !ok {
		discard(v)
		return tooSmall("%d handles of one kind are open", maxIndex+1)
	}
	*out = H(h)
	return nil
}
