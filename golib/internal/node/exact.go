package node

import (
	"time"

	"github.com/redox-loader/redox/golib/internal/buffer"
	"github.com/redox-loader/redox/golib/internal/fault"
)

// Exact is samples by number on their way into memory that other processes map: NewExact finds where they lie, Room
// takes the memory, Fill reads and puts together.
type Exact struct {
	engine *Engine
	look   *lookup
	stage  *buffer.Region
	batch  int64 // bytes of the batch, in whole pages; at most so many before it is there
	need   int64 // with what is read for it
	held   int64 // of the engine's room
}

// NewExact finds where samples lie; it may wait for their tables.
func (e *Engine) NewExact(numbers []int64, want []int, timeout time.Duration) (*Exact, error) {
	pat := &patience{limit: timeout}
	defer pat.done()
	l, err := e.look(numbers, want, pat)
	if err != nil {
		return nil, err
	}
	x := &Exact{engine: e, look: l, batch: buffer.Pages(l.most())}
	x.need = x.batch + buffer.Pages(l.stage)
	return x, nil
}

// most is an upper bound of a batch's bytes, as the tables tell it: bodies hold all that columns do, and headers of
// arrays of any shape besides.
func (l *lookup) most() int64 {
	n, size := int64(l.j.n), int64(0)
	for k := range l.rec.fields {
		size += (&l.rec.fields[k]).around(n, maxShape)
		if f := &l.rec.fields[k]; f.fixed {
			size += alignColumn(n * int64(f.size))
		}
	}
	if !l.rec.fixed {
		for _, o := range l.j.ops {
			if t := l.tables[o.chunk]; t.err == nil {
				size += int64(t.RawBody(int(o.sample)))
			}
		}
	}
	return size + alignColumn(8*n)
}

// maxShape is how many dimensions arrays of any shape have at most, for most.
const maxShape = 8

// around is the bytes of a column of n samples beside the data, and what aligning that may take.
func (f *field) around(n, dims int64) (size int64) {
	if !f.fixed {
		size += columnAlign + alignColumn(8*(n+1))
	}
	if f.shaped {
		size += alignColumn(8 * n * dims)
	}
	if f.nullable {
		size += alignColumn(n)
	}
	return size
}

// Room takes the memory that the samples need, out of what exact reading has: as for `workers` readers and their batches
// on the way to a trainer, if the limit allows, or may grow by as much as spare. False: there is none now. scarce: if
// the batch stayed in memory, there might be none for the other readers.
func (x *Exact) Room(workers int, spare int64) (ok, scarce bool, err error) {
	e, w := x.engine, int64(workers)
	e.mu.Lock()
	defer e.mu.Unlock()
	r := &e.exact
	r.largest = max(r.largest, x.need)
	if pool := (3*w+2)*x.batch + w*x.need; pool > r.pool {
		e.growResults(r, pool-r.pool, spare)
	}
	if x.need > r.pool {
		needed := e.limit - r.pool + x.need
		err := fault.New(fault.Memory, "memory_limit is %d bytes, but %d are needed to read a batch of %d samples by number", e.limit,
			needed, x.look.j.n)
		err.Given, err.Needed = e.limit, needed
		return false, false, err
	}
	if r.live+x.need > r.pool {
		return false, false, nil
	}
	if x.look.stage > 0 {
		if x.stage = e.slots.Alloc(x.look.stage); x.stage == nil {
			return false, false, nil
		}
	}
	r.live += x.need
	x.held = x.need
	return true, r.live-x.need+x.batch+w*r.largest > r.pool, nil
}

// Drop gives up.
func (x *Exact) Drop() {
	e := x.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	x.give(0)
}

// give returns the memory that was read into, and the claim to room but for `keep` bytes. engine.mu is held.
func (x *Exact) give(keep int64) {
	if x.stage != nil {
		x.stage.Release()
		x.stage = nil
	}
	x.engine.exact.live += keep - x.held
	x.held = keep
}

// Fill reads the samples and puts them together. corrupt, if not nil, is told each corrupt sample, which another one of
// the batch then replaces; its error ends the call. The room is given back with the result, or at once if there is none.
func (x *Exact) Fill(timeout time.Duration, corrupt func(error) error) (*Result, error) {
	pat := &patience{limit: timeout}
	defer pat.done()
	var stage []byte
	if x.stage != nil {
		stage = x.stage.Bytes()
	}
	landed := make(chan struct{})
	x.look.read(stage, func() { close(landed) })
	r, err := x.fill(pat, corrupt)
	if err == nil {
		return r, nil
	}
	select {
	case <-landed:
		x.Drop()
	default: // storage still writes into the memory
		go func() {
			<-landed
			x.Drop()
		}()
	}
	return nil, lookupError(x.look.j, err)
}

func (x *Exact) fill(pat *patience, corrupt func(error) error) (*Result, error) {
	e, j := x.engine, x.look.j
	a := x.look.assembler(pat)
	a.skip, a.corrupt = corrupt != nil && j.n > 1, corrupt // nothing can replace a single sample
	if err := a.measure(j); err != nil {
		return nil, err
	}
	r := &Result{engine: e, ledger: &e.exact, batch: Batch{CapSamples: j.n, N: j.n, Fields: make([]Column, len(x.look.rec.fields))}}
	for {
		if r.region = x.look.rec.layOut(&r.batch, j, e.slots.Alloc); r.region == nil {
			return nil, fault.New(fault.Memory, "memory_limit leaves no room for %d bytes", x.batch)
		}
		err := a.gather(j, r.batch.Fields)
		if err == nil {
			break
		}
		r.region.Release()
		if err != errAgain {
			return nil, err
		}
	}
	copy(r.batch.Index, j.index)
	r.batch.Flags = j.flags()
	e.mu.Lock()
	defer e.mu.Unlock()
	r.size = buffer.Pages(int64(len(r.region.Bytes())))
	x.give(r.size)
	return r, nil
}

// Batch is the batch in the result; of results that clients make themselves, none.
func (r *Result) Batch() *Batch { return &r.batch }

// Places is where the batch's columns lie, and where its index does.
func (r *Result) Places() (columns []Place, index uint64) { return places(r.region, &r.batch) }

// ExactStats are the counters of requests to storage and of memory, for those who count exact reading.
func (e *Engine) ExactStats() Stats {
	s := e.storage()
	s.Rereads = e.set.Counters().Rereads
	s.Resident, s.ResidentPeak, _ = e.Memory()
	return s
}
