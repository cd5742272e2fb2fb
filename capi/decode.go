package main

/*
#include <string.h>
#include "redox.h"
*/
import "C"

import (
	"math"
	"time"
	"unsafe"
)

// text copies a C string; NULL is the empty one.
func text(p *C.char) string { return C.GoString(p) }

// required copies a C string that must not be NULL.
func required(p *C.char, name string) (string, error) {
	if p == nil {
		return "", invalid("%s is NULL", name)
	}
	return C.GoString(p), nil
}

// options copies an options object; nil means the defaults.
func options(p *C.char) []byte {
	if p == nil {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(p)), C.strlen(p))
}

// result checks that there is a place for a result.
func result[T any](out *T, name string) error {
	if out == nil {
		return invalid("%s is NULL", name)
	}
	return nil
}

// view makes n items of the caller's memory a slice, valid until the call returns.
func view[T any](p *T, n uint64, name string) ([]T, error) {
	size := uint64(unsafe.Sizeof(*p))
	switch {
	case n == 0:
		return nil, nil
	case p == nil:
		return nil, invalid("%s is NULL but has %d items", name, n)
	case n > math.MaxInt/size:
		return nil, invalid("%s: %d items of %d bytes are more than the address space", name, n, size)
	case uintptr(unsafe.Pointer(p))%unsafe.Alignof(*p) != 0:
		return nil, invalid("%s is not aligned to %d bytes", name, unsafe.Alignof(*p))
	}
	return unsafe.Slice(p, n), nil
}

// optional is view for memory that the caller may leave out.
func optional[T any](p *T, n uint64, name string) ([]T, error) {
	if p == nil {
		return nil, nil
	}
	return view(p, n, name)
}

// numbers is view for the stored numbers of samples.
func numbers(p *C.int64_t, n C.size_t, name string) ([]int64, error) {
	return view((*int64)(unsafe.Pointer(p)), uint64(n), name)
}

// give copies a text and its NUL to the caller, or says how much room it needs.
func give(b []byte, buf *C.char, capacity C.size_t, need *C.size_t) error {
	n := len(b) + 1
	if need != nil {
		*need = C.size_t(n)
	}
	if uint64(capacity) < uint64(n) {
		return tooSmall("the buffer has %d bytes, %d are needed", capacity, n)
	}
	dst, err := view((*byte)(unsafe.Pointer(buf)), uint64(n), "the buffer")
	if err != nil {
		return err
	}
	copy(dst, b)
	dst[len(b)] = 0
	return nil
}

// timeout converts milliseconds; negative means the callee's own timeout.
func timeout(ms C.int64_t) time.Duration {
	switch {
	case ms < 0:
		return -1
	case int64(ms) > math.MaxInt64/int64(time.Millisecond):
		return math.MaxInt64
	}
	return time.Duration(ms) * time.Millisecond
}
