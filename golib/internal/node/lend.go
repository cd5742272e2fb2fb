package node

import (
	"unsafe"

	"github.com/redox-loader/redox/golib/internal/buffer"
)

// What another process needs to look at a lent batch: the file that slots lie in, and where in it each column is.

// SlotMemory is the file that the engine's slots lie in, and how much of it there is to map. The file belongs to the
// engine, and its size is sealed.
func (e *Engine) SlotMemory() (fd uintptr, size int64) { return e.slots.Fd(), e.slots.Size() }

// Slots is how many slots the run has: batches that are being assembled, are lent, or are free.
func (r *Run) Slots() int { return r.cfg.Prefetch + 1 }

// Engine is the memory that the run draws on.
func (r *Run) Engine() *Engine { return r.eng }

// Nowhere is the place of what a column lacks.
const Nowhere = ^uint64(0)

// Place is where a column of a lent batch lies in the slots' file.
type Place struct {
	Data, Need            uint64
	Offsets, Shape, Valid uint64 // or Nowhere
	Dims                  uint32
}

// Places is where the slot's columns lie, and where its index does.
func (s *Slot) Places() (columns []Place, index uint64) { return places(s.region, &s.batch) }

func places(r *buffer.Region, b *Batch) (columns []Place, index uint64) {
	columns = make([]Place, len(b.Fields))
	for k := range b.Fields {
		c := &b.Fields[k]
		columns[k] = Place{
			Data: place(r, c.Data), Need: c.Need, Offsets: place(r, c.Offsets), Shape: place(r, c.Shape),
			Valid: place(r, c.Valid), Dims: uint32(c.NDim),
		}
	}
	return columns, place(r, b.Index)
}

// place is where a part of a region begins in the file.
func place[T any](r *buffer.Region, part []T) uint64 {
	if len(part) == 0 {
		return Nowhere
	}
	base := unsafe.Pointer(unsafe.SliceData(r.Bytes()))
	return uint64(r.Offset()) + uint64(uintptr(unsafe.Pointer(unsafe.SliceData(part)))-uintptr(base))
}

// results is the memory for one sort of batches that no run makes.
type results struct {
	pool, live int64 // bytes reserved, and in use
	largest    int64 // that was asked for at once; of exact reading
}

// Result is memory in the slots' file for a batch, or a part of one, that no run makes: a client does, out of transformed
// samples, or Exact.
type Result struct {
	engine *Engine
	ledger *results
	region *buffer.Region
	size   int64 // in whole pages, as the ledger has it
	batch  Batch // of Exact
}

// NewResult returns memory for a part of a result, or nil when there is no room: it never takes any from runs. The first
// ones reserve memory: pool bytes if possible, else what is left of the limit; beyond the limit, if it may grow by as
// much as spare.
func (e *Engine) NewResult(size, pool, spare int64) *Result {
	e.mu.Lock()
	defer e.mu.Unlock()
	need := buffer.Pages(size)
	if pool = buffer.Pages(pool); pool > e.results.pool {
		e.growResults(&e.results, pool-e.results.pool, spare)
	}
	if e.results.live+need > e.results.pool {
		return nil
	}
	region := e.slots.Alloc(size)
	if region == nil {
		return nil
	}
	e.results.live += need
	return &Result{engine: e, ledger: &e.results, region: region, size: need}
}

// growResults reserves up to n more bytes for results. mu is held.
func (e *Engine) growResults(r *results, n, spare int64) {
	left := e.limit - e.reserved.total()
	if grow := min(n-left, spare-r.pool); grow > 0 {
		e.limit += grow
		e.budget.Grow(grow)
		left += grow
	}
	if n = min(n, left); n > 0 {
		e.apply(e.reserved.plus(demand{slots: n}, 1))
		e.divide()
		r.pool += n
	}
}

// Place is where the result lies in the slots' file.
func (r *Result) Place() int64 { return r.region.Offset() }

// Release gives the memory back.
func (r *Result) Release() {
	e := r.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	r.ledger.live -= r.size
	r.region.Release()
}
