package node

import "unsafe"

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
func (s *Slot) Places() (columns []Place, index uint64) {
	columns = make([]Place, len(s.batch.Fields))
	for k := range s.batch.Fields {
		c := &s.batch.Fields[k]
		columns[k] = Place{
			Data: place(s, c.Data), Need: c.Need, Offsets: place(s, c.Offsets), Shape: place(s, c.Shape),
			Valid: place(s, c.Valid), Dims: uint32(c.NDim),
		}
	}
	return columns, place(s, s.batch.Index)
}

// place is where a part of the slot's memory begins in the file.
func place[T any](s *Slot, part []T) uint64 {
	if len(part) == 0 {
		return Nowhere
	}
	base := unsafe.Pointer(unsafe.SliceData(s.region.Bytes()))
	return uint64(s.region.Offset()) + uint64(uintptr(unsafe.Pointer(unsafe.SliceData(part)))-uintptr(base))
}
