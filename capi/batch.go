package main

/*
#include "redox.h"
*/
import "C"

import (
	"math"
	"unsafe"

	redox "github.com/redox-loader/redox/golib"
)

// maxFields bounds what a caller can claim, far above any schema.
const maxFields = 1 << 16

// fieldsOf views the fields of the caller's batch after checking the batch itself.
func fieldsOf(b *C.redox_batch) ([]C.redox_field, error) {
	switch {
	case b == nil:
		return nil, invalid("batch is NULL")
	case b.struct_size != C.uint32_t(unsafe.Sizeof(*b)):
		return nil, &mistake{C.REDOX_EVERSION, "batch.struct_size is not sizeof(redox_batch) of this library: " +
			"set it, or compile for this version"}
	case b.n_fields == 0 || b.n_fields > maxFields: // a data set has at least one
		return nil, invalid("batch.n_fields is %d", b.n_fields)
	}
	return view(b.fields, uint64(b.n_fields), "batch.fields")
}

// decodeBatch views the caller's memory as the batch that golib fills.
func decodeBatch(b *C.redox_batch) (*redox.Batch, error) {
	fields, err := fieldsOf(b)
	if err != nil {
		return nil, err
	}
	samples := uint64(b.cap_samples)
	out := &redox.Batch{CapSamples: int(samples), Fields: make([]redox.Column, len(fields))}
	if out.Index, err = optional((*int64)(unsafe.Pointer(b.index)), samples, "batch.index"); err != nil {
		return nil, err
	}
	for i := range fields {
		if err := decodeField(&fields[i], samples, &out.Fields[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func decodeField(f *C.redox_field, samples uint64, c *redox.Column) (err error) {
	if c.Data, err = view((*byte)(f.data), uint64(f.cap), "field.data"); err != nil {
		return err
	}
	if c.Offsets, err = optional((*uint64)(unsafe.Pointer(f.offsets)), samples+1, "field.offsets"); err != nil {
		return err
	}
	// Two factors below 2^32 do not overflow.
	c.Shape, err = optional((*uint64)(unsafe.Pointer(f.shape)), samples*uint64(f.shape_cap), "field.shape")
	if err != nil {
		return err
	}
	if f.shape != nil {
		c.ShapeCap = int(f.shape_cap)
	}
	c.Valid, err = optional((*byte)(unsafe.Pointer(f.valid)), samples, "field.valid")
	return err
}

// decodeParts views the places that the caller has for single samples.
func decodeParts(parts unsafe.Pointer, b *redox.Batch) error {
	lists, err := optional((**unsafe.Pointer)(parts), uint64(len(b.Fields)), "parts")
	if err != nil {
		return err
	}
	for k, list := range lists {
		if b.Fields[k].Parts, err = optional(list, uint64(b.CapSamples), "parts[k]"); err != nil {
			return err
		}
	}
	return nil
}

// encodeBatch writes the outcome of filling the caller's memory. With REDOX_ERANGE it is what would be needed.
func encodeBatch(b *C.redox_batch, from *redox.Batch) {
	encodeHead(b, from)
	fields := unsafe.Slice(b.fields, b.n_fields)
	for i := range fields {
		fields[i].need = C.uint64_t(from.Fields[i].Need)
		fields[i].ndim = C.uint32_t(from.Fields[i].NDim)
	}
}

// lendBatch points the caller's batch at a slot's memory, which lies outside the Go heap.
func lendBatch(b *C.redox_batch, from *redox.Batch) {
	encodeHead(b, from)
	b.cap_samples = C.uint32_t(from.CapSamples)
	b.index = (*C.int64_t)(unsafe.Pointer(unsafe.SliceData(from.Index)))
	fields := unsafe.Slice(b.fields, b.n_fields)
	for i := range fields {
		f, c := &fields[i], &from.Fields[i]
		f.data = unsafe.Pointer(unsafe.SliceData(c.Data))
		f.cap, f.need = C.uint64_t(len(c.Data)), C.uint64_t(c.Need)
		f.offsets = (*C.uint64_t)(unsafe.Pointer(unsafe.SliceData(c.Offsets)))
		f.shape = (*C.uint64_t)(unsafe.Pointer(unsafe.SliceData(c.Shape)))
		f.ndim, f.shape_cap = C.uint32_t(c.NDim), C.uint32_t(c.ShapeCap)
		f.valid = (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(c.Valid)))
	}
}

func encodeHead(b *C.redox_batch, from *redox.Batch) {
	b.flags = C.uint32_t(from.Flags)
	b.n_samples = C.uint32_t(from.N)
	b.epoch, b.step = C.uint64_t(from.Epoch), C.uint64_t(from.Step)
}

// decodeValues views one sample's fields as the values that a writer copies.
func decodeValues(p *C.redox_field, n C.uint32_t) ([]redox.Value, error) {
	if n > maxFields {
		return nil, invalid("n_fields is %d", n)
	}
	fields, err := view(p, uint64(n), "fields")
	if err != nil {
		return nil, err
	}
	values := make([]redox.Value, len(fields))
	for i := range fields {
		f, v := &fields[i], &values[i]
		if f.valid != nil && *f.valid == 0 {
			v.Missing = true
			continue
		}
		if f.ndim > math.MaxUint8 {
			return nil, invalid("field %d: %d dimensions; the format allows %d", i, f.ndim, math.MaxUint8)
		}
		if v.Data, err = view((*byte)(f.data), uint64(f.cap), "field.data"); err != nil {
			return nil, err
		}
		if v.Shape, err = view((*uint64)(unsafe.Pointer(f.shape)), uint64(f.ndim), "field.shape"); err != nil {
			return nil, err
		}
	}
	return values, nil
}
