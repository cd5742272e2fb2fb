package node

import (
	"cmp"
	"sync/atomic"
	"unsafe"

	"github.com/redox-loader/redox/golib/internal/buffer"
	"github.com/redox-loader/redox/golib/internal/fault"
)

// Slot is a batch lent to the caller. Its memory stays valid and unchanged until Release, even if the run or the engine
// is closed before.
type Slot struct {
	run      *Run
	region   *buffer.Region
	batch    Batch
	released atomic.Bool
}

// newSlot finds memory for a measured job and lays its columns out in it: each column's data, offsets, shapes and
// validity, then the index. Nil: there is no room now.
func (r *Run) newSlot(j *job) *Slot {
	b := Batch{
		CapSamples: j.n, N: j.n, Step: j.step, Epoch: r.current.Load().epoch, Fields: make([]Column, len(r.rec.fields)),
	}
	region := r.rec.layOut(&b, j, r.eng.slots.Alloc)
	if region == nil {
		return nil
	}
	return &Slot{run: r, region: region, batch: b}
}

// layOut cuts memory for a measured job into a batch's columns. Nil: there is no room.
func (rec *record) layOut(b *Batch, j *job, alloc func(size int64) *buffer.Region) *buffer.Region {
	rec.setNeeds(b, j)
	size := int64(0)
	for k := range rec.fields {
		f, c := &rec.fields[k], &b.Fields[k]
		size += alignColumn(int64(c.Need))
		if !f.fixed {
			size += alignColumn(8 * int64(j.n+1))
		}
		if f.shaped {
			size += alignColumn(8 * int64(j.n) * int64(c.NDim))
		}
		if f.nullable {
			size += alignColumn(int64(j.n))
		}
	}
	size += alignColumn(8 * int64(j.n))
	region := alloc(size)
	if region == nil {
		return nil
	}
	mem := region.Bytes()
	cut := func(n int64) []byte {
		part := mem[:n:n]
		mem = mem[alignColumn(n):]
		return part
	}
	for k := range rec.fields {
		f, c := &rec.fields[k], &b.Fields[k]
		c.Data = cut(int64(c.Need))
		if !f.fixed {
			c.Offsets = words(cut(8 * int64(j.n+1)))
		}
		if f.shaped {
			c.ShapeCap = c.NDim
			c.Shape = words(cut(8 * int64(j.n) * int64(c.NDim)))
		}
		if f.nullable {
			c.Valid = cut(int64(j.n))
		}
	}
	if idx := cut(8 * int64(j.n)); j.n > 0 {
		b.Index = unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(idx))), j.n)
	}
	rec.setOffsets(b, j)
	return region
}

// words is memory, aligned by construction, as 64-bit numbers.
func words(b []byte) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8)
}

// Offset is where the slot begins in the slots' memory file.
func (s *Slot) Offset() int64 { return s.region.Offset() }

// Release gives the slot back. Releasing twice panics, as the memory may be another batch's by then.
func (s *Slot) Release() {
	if s.released.Swap(true) {
		panic("node: slot released twice")
	}
	s.free()
	s.run.letGo()
}

// free makes the slot's memory reusable.
func (s *Slot) free() {
	r := s.run
	s.region.Release()
	r.mu.Lock()
	r.slots++
	if r.pass != nil {
		r.pass.work.Broadcast()
	}
	r.mu.Unlock()
}

// setNeeds sets what a measured job needs in each column.
func (r *record) setNeeds(b *Batch, j *job) {
	b.N = j.n
	fields := len(r.fields)
	for k := range r.fields {
		f, c := &r.fields[k], &b.Fields[k]
		c.NDim = 0
		if f.fixed {
			c.Need = uint64(j.n) * uint64(f.size)
			continue
		}
		c.Need = 0
		for i := range j.n {
			c.Need += j.sizes[i*fields+k]
		}
		if f.shaped {
			c.NDim = j.ndim
		}
	}
}

// setOffsets writes the offsets of a measured job, and marks as valid what cannot be missing.
func (r *record) setOffsets(b *Batch, j *job) {
	fields := len(r.fields)
	for k := range r.fields {
		f, c := &r.fields[k], &b.Fields[k]
		if !f.fixed && len(c.Offsets) > j.n { // else the caller is told so
			at := uint64(0)
			for i := range j.n {
				c.Offsets[i] = at
				at += j.sizes[i*fields+k]
			}
			c.Offsets[j.n] = at
		}
		for i := range c.Valid {
			c.Valid[i] = 1
		}
	}
}

// accept checks that the caller's memory has room for a measured job. The offsets are written in any case: they tell
// who offers parts how large those must be.
func (r *record) accept(dst *Batch, j *job) error {
	fields := len(r.fields)
	r.setNeeds(dst, j)
	parts := r.partsFit(dst, func(k, i int) uint64 { return j.sizes[i*fields+k] })
	r.setOffsets(dst, j)
	return cmp.Or(r.fits(dst), parts)
}

// partsFit compares the sizes of samples with those of the parts offered for them, which the offsets say.
func (r *record) partsFit(dst *Batch, size func(k, i int) uint64) error {
	if dst.N > dst.CapSamples {
		return nil // fits tells
	}
	for k := range r.fields {
		c := &dst.Fields[k]
		switch {
		case c.Parts == nil:
			continue
		case r.fields[k].fixed:
			return fault.New(fault.Invalid, "field %d has samples of one size: they have no parts", k)
		case len(c.Offsets) <= dst.N:
			return fault.New(fault.Invalid, "field %d has parts: it needs offsets, which say how large they are", k)
		}
		for i := range dst.N {
			switch part := c.Offsets[i+1] - c.Offsets[i]; {
			case part != size(k, i):
				return fault.New(fault.Range, "sample %d of field %d has %d bytes, its part %d", i, k, size(k, i), part)
			case part > 0 && c.Parts[i] == nil:
				return fault.New(fault.Invalid, "part %d of field %d is NULL", i, k)
			}
		}
	}
	return nil
}

// fits compares needs with what is offered. All needs are set already.
func (r *record) fits(dst *Batch) error {
	if dst.N > dst.CapSamples {
		return fault.New(fault.Range, "the batch has %d samples, the buffers have room for %d", dst.N, dst.CapSamples)
	}
	if dst.Index != nil && len(dst.Index) < dst.N {
		return fault.New(fault.Invalid, "index has room for %d samples of %d", len(dst.Index), dst.N)
	}
	for k := range r.fields {
		f, c := &r.fields[k], &dst.Fields[k]
		switch {
		case c.Parts == nil && uint64(len(c.Data)) < c.Need:
			return fault.New(fault.Range, "field %d needs %d bytes, its buffer has %d", k, c.Need, len(c.Data))
		case !f.fixed && len(c.Offsets) < dst.N+1:
			return fault.New(fault.Invalid, "field %d has samples of different sizes: it needs offsets", k)
		case f.shaped && c.Shape != nil && c.NDim > c.ShapeCap:
			return fault.New(fault.Range, "field %d has arrays of %d dimensions, its shapes have room for %d", k, c.NDim, c.ShapeCap)
		case c.Shape != nil && len(c.Shape) < dst.N*c.ShapeCap, c.Valid != nil && len(c.Valid) < dst.N:
			return fault.New(fault.Invalid, "field %d: shapes or validity have too little room", k)
		}
	}
	return nil
}

// copyBatch copies an assembled batch into the caller's memory.
func (r *record) copyBatch(dst, src *Batch) error {
	dst.N = src.N
	for k := range r.fields {
		dst.Fields[k].Need, dst.Fields[k].NDim = src.Fields[k].Need, src.Fields[k].NDim
	}
	parts := r.partsFit(dst, func(k, i int) uint64 { return src.Fields[k].Offsets[i+1] - src.Fields[k].Offsets[i] })
	for k := range r.fields {
		if d := &dst.Fields[k]; !r.fields[k].fixed && len(d.Offsets) > src.N {
			copy(d.Offsets, src.Fields[k].Offsets)
		}
	}
	if err := cmp.Or(r.fits(dst), parts); err != nil {
		return err
	}
	for k := range r.fields {
		f, d, s := &r.fields[k], &dst.Fields[k], &src.Fields[k]
		if d.Parts == nil {
			copyBytes(d.Data, s.Data)
		} else {
			for i := range src.N {
				copyBytes(f.place(d, i), f.place(s, i))
			}
		}
		for i := range d.Valid[:min(len(d.Valid), src.N)] {
			d.Valid[i] = 1
		}
		if f.nullable {
			copy(d.Valid, s.Valid)
		}
		if d.Shape != nil {
			for i := range src.N {
				copyShape(d, s, i)
			}
		}
	}
	copy(dst.Index, src.Index)
	dst.Epoch, dst.Step, dst.Flags = src.Epoch, src.Step, src.Flags
	return nil
}
