// Package node is one node's work on a plan: it reads ahead what the plan will need, keeps it in memory, and fills
// batches. It is for package redox, which puts options, states and handles around it.
//
//	Reader  an opened data set: source, queue, index; single samples by number
//	Engine  the memory: an arena for chunks and one for batch slots under one hard limit, shared by runs
//	Run     one rank's passes over the data set, epoch after epoch
//	pass    one epoch of a run: read-ahead, jobs in order, the workers that assemble them
//	job     one batch on its way: which samples go where
//
// There is one assembly code for both ways of delivery: into the caller's memory (Next) or into a slot of the arena
// (Acquire), which workers fill ahead. Per sample there is no goroutine, no channel and no allocation.
//
// The package computes no order and no assignment (package plan does) and knows no format (package chunk does).
package node

import (
	"sync"

	"github.com/redox-loader/redox/golib/internal/buffer"
	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/resident"
)

// Logger takes a line for the log: level is "debug", "info", "warning" or "error".
type Logger func(level, message string)

// Engine owns the memory that samples live in, within a hard limit. Each run reserves its share when it is made;
// what is left over keeps chunks for later. Safe for concurrent use.
type Engine struct {
	*Reader
	limit  int64
	budget *buffer.Budget
	chunks *buffer.Arena
	slots  *buffer.Arena
	set    *resident.Set
	log    Logger

	mu       sync.Mutex
	refs     int
	reserved demand // of all runs
	runs     map[*Run]struct{}
	results  results // that clients make
	exact    results // of samples by number
}

// demand is the memory that a run must have to make progress, in bytes.
type demand struct {
	chunks  int64 // the window's largest chunks and the least read-ahead
	slots   int64 // batches assembled ahead and lent
	scratch int64 // for decoding and for samples read by themselves, on the Go heap
}

func (d demand) total() int64 { return d.chunks + d.slots + d.scratch }

func (d demand) plus(o demand, sign int64) demand {
	return demand{d.chunks + sign*o.chunks, d.slots + sign*o.slots, d.scratch + sign*o.scratch}
}

// NewEngine returns an engine over an opened data set, which it retains. log may be nil.
func NewEngine(r *Reader, limit int64, log Logger) (*Engine, error) {
	if log == nil {
		log = func(string, string) {}
	}
	e := &Engine{limit: limit, budget: buffer.NewBudget(limit), log: log, refs: 1, runs: map[*Run]struct{}{}}
	var err error
	if e.chunks, err = e.budget.NewArena("chunks", limit); err != nil {
		return nil, fault.Wrap(fault.Memory, err, "memory for %d bytes of chunks", limit)
	}
	if e.slots, err = e.budget.NewArena("slots", 0); err != nil {
		e.chunks.Close()
		return nil, fault.Wrap(fault.Memory, err, "memory for batches")
	}
	e.Reader = r.Retain()
	e.set = resident.New(r.source, r.queue, e.chunks, r.layout, r.index)
	return e, nil
}

// Limit is the memory limit in bytes.
func (e *Engine) Limit() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.limit
}

// Retain adds a user (another loader that shares the memory); each must Close.
func (e *Engine) Retain() *Engine {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.refs <= 0 {
		panic("node: engine used after close")
	}
	e.refs++
	return e
}

// Close removes a user; with the last one the memory goes, but for slots that are still lent.
func (e *Engine) Close() {
	e.mu.Lock()
	e.refs--
	last := e.refs == 0
	e.mu.Unlock()
	if last {
		e.set.Close()
		e.Reader.Close()
		e.chunks.Close()
		e.slots.Close()
	}
}

// reserve sets memory aside, so that no other run can make this one wait for ever.
func (e *Engine) reserve(d demand) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	sum := e.reserved.plus(d, 1)
	if sum.total() > e.limit {
		return false
	}
	e.apply(sum)
	return true
}

// join makes a run with a reservation known, leave ends it.
func (e *Engine) join(r *Run) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.runs[r] = struct{}{}
	e.divide()
}

func (e *Engine) leave(r *Run) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.runs, r)
	e.apply(e.reserved.plus(r.need, -1))
	e.divide()
}

// divide lets each run hold its reservation and an equal part of what is spare; what one holds beyond that it drops.
// mu is held.
func (e *Engine) divide() {
	if len(e.runs) == 0 {
		return
	}
	spare := (e.limit - e.reserved.total()) / int64(len(e.runs))
	for r := range e.runs {
		r.user.SetShare(r.need.chunks + spare)
		r.shed()
	}
}

// apply divides the limit: slots and scratch get what is reserved for them, chunks all the rest. mu is held.
func (e *Engine) apply(sum demand) {
	quota := e.limit - sum.slots - sum.scratch
	if quota < e.limit-e.reserved.slots-e.reserved.scratch {
		e.chunks.SetQuota(quota)
		e.set.Shrink(quota)
	}
	if grow := sum.scratch - e.reserved.scratch; grow > 0 {
		e.budget.Charge(grow)
	} else if grow < 0 {
		e.budget.Discharge(-grow)
	}
	e.slots.SetQuota(sum.slots)
	e.chunks.SetQuota(quota)
	e.reserved = sum
}

// Memory is what the engine holds: bytes touched now, the most so far, and the limit.
func (e *Engine) Memory() (used, peak, limit int64) {
	return e.budget.Used(), e.budget.Peak(), e.Limit()
}
