package chunk

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// Kinds of fields. The image kinds are encoded images: bytes here, pictures to those who decode.
const (
	KindBytes    = "bytes"
	KindStr      = "str" // UTF-8
	KindInt      = "int" // int64
	KindFloat    = "float"
	KindBool     = "bool" // one byte, 0 or 1
	KindJSON     = "json" // UTF-8 text
	KindImage    = "image"
	KindJPEG     = "jpeg"
	KindPNG      = "png"
	KindImageRaw = "image:raw" // encoded, to be decoded without a conversion to RGB
	KindArray    = "array"     // of DType; Shape says whether all samples have one shape
)

var kinds = []string{
	KindBytes, KindStr, KindInt, KindFloat, KindBool, KindJSON, KindImage, KindJPEG, KindPNG, KindImageRaw, KindArray,
}

// itemSizes are the element types of arrays, by numpy's names, with their bytes. All are little-endian.
var itemSizes = map[string]int{
	"bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2, "int32": 4, "uint32": 4,
	"float32": 4, "int64": 8, "uint64": 8, "float64": 8, "complex64": 8, "complex128": 16,
}

const (
	maxFields = 4096
	// maxFixed bounds a fixed-size field, so that sums of sizes can't overflow: 2^44 bytes x maxFields < 2^63.
	maxFixed = 1 << 44
	// maxDims is numpy's limit.
	maxDims = 64
)

// Field is one named part of every sample.
type Field struct {
	Name     string  `json:"name"`
	Kind     string  `json:"kind"`
	DType    string  `json:"dtype,omitempty"`    // element type of KindArray
	Shape    []int64 `json:"shape"`              // of KindArray: the shape of all samples; nil: each has its own
	Nullable bool    `json:"nullable,omitempty"` // a sample may lack it
}

// Schema is the fields of every sample, in order, and how a sample looks to Python.
type Schema struct {
	Fields []Field `json:"fields"`
	Layout string  `json:"layout"` // tuple, dict or scalar
}

// ParseField reads a kind as users write it: "int", "jpeg?", "float32[3,32,32]", "int64" (an array of any shape; also
// "int64[...]", and only so for bool, whose bare name is the scalar).
func ParseField(name, kind string) (Field, error) {
	f := Field{Name: name}
	text := strings.TrimSpace(kind)
	text, f.Nullable = strings.CutSuffix(text, "?")
	head, dims, bracket := strings.Cut(strings.TrimSpace(text), "[")
	switch {
	case !bracket && slices.Contains(kinds, head) && head != KindArray:
		f.Kind = head
		return f, f.check()
	case itemSizes[head] == 0:
		return f, fault.New(fault.Invalid, "field %q: unknown kind %q", name, kind)
	}
	f.Kind, f.DType = KindArray, head
	if !bracket {
		return f, f.check()
	}
	dims, closed := strings.CutSuffix(strings.TrimSpace(dims), "]")
	if !closed {
		return f, fault.New(fault.Invalid, "field %q: kind %q lacks its closing bracket", name, kind)
	}
	if dims = strings.TrimSpace(dims); dims == "..." {
		return f, f.check()
	}
	f.Shape = []int64{}
	if dims == "" {
		return f, f.check()
	}
	for _, dim := range strings.Split(strings.TrimSuffix(dims, ","), ",") {
		n, err := strconv.ParseInt(strings.TrimSpace(dim), 10, 64)
		if err != nil {
			return f, fault.New(fault.Invalid, "field %q: %q in kind %q is not a dimension", name, dim, kind)
		}
		f.Shape = append(f.Shape, n)
	}
	return f, f.check()
}

// String is the kind as users write it; ParseField reads it back.
func (f Field) String() string {
	kind := f.Kind
	if f.Kind == KindArray {
		kind = f.DType
		switch {
		case f.Shape != nil:
			kind += strings.ReplaceAll(fmt.Sprint(f.Shape), " ", ",")
		case slices.Contains(kinds, f.DType): // the bare name would be the scalar
			kind += "[...]"
		}
	}
	if f.Nullable {
		kind += "?"
	}
	return kind
}

// ItemSize is the bytes of one element: of an array's dtype, of a number; 1 for kinds that are byte strings.
func (f Field) ItemSize() int {
	switch f.Kind {
	case KindInt, KindFloat:
		return 8
	case KindArray:
		return itemSizes[f.DType]
	}
	return 1
}

// FixedSize returns the bytes that this field takes in every sample, if they are the same for all.
func (f Field) FixedSize() (n int, fixed bool) {
	switch f.Kind {
	case KindInt, KindFloat:
		return 8, true
	case KindBool:
		return 1, true
	case KindArray:
		if f.Shape == nil {
			return 0, false
		}
		n, ok := product(f.Shape, itemSizes[f.DType])
		return n, ok
	}
	return 0, false
}

// product multiplies dimensions and item size; false if one is negative or the product exceeds maxFixed.
func product[T int64 | uint64](dims []T, item int) (int, bool) {
	n := uint64(item)
	zero := false
	for _, d := range dims {
		if d < 0 || uint64(d) > math.MaxInt64 {
			return 0, false
		}
		if d == 0 {
			zero = true
			continue
		}
		if n > maxFixed/uint64(d) {
			return 0, false
		}
		n *= uint64(d)
	}
	if zero {
		return 0, true
	}
	return int(n), n <= maxFixed
}

func (f Field) check() error {
	switch {
	case f.Name == "" || len(f.Name) > 1024 || !utf8.ValidString(f.Name):
		return fault.New(fault.Invalid, "field name %q: must be 1 to 1024 bytes of UTF-8", f.Name)
	case !slices.Contains(kinds, f.Kind):
		return fault.New(fault.Invalid, "field %q: unknown kind %q", f.Name, f.Kind)
	case f.Kind != KindArray && (f.DType != "" || f.Shape != nil):
		return fault.New(fault.Invalid, "field %q: only arrays have a dtype and a shape, not %s", f.Name, f.Kind)
	case f.Kind == KindArray && itemSizes[f.DType] == 0:
		return fault.New(fault.Invalid, "field %q: unknown dtype %q", f.Name, f.DType)
	case len(f.Shape) > maxDims:
		return fault.New(fault.Invalid, "field %q: %d dimensions, at most %d", f.Name, len(f.Shape), maxDims)
	}
	if _, fixed := f.FixedSize(); f.Shape != nil && !fixed {
		return fault.New(fault.Invalid, "field %q: impossible shape %v", f.Name, f.Shape)
	}
	return nil
}

// Validate checks names, kinds and layout; what is wrong is fault.Invalid.
func (s Schema) Validate() error {
	if len(s.Fields) == 0 || len(s.Fields) > maxFields {
		return fault.New(fault.Invalid, "a schema has 1 to %d fields, not %d", maxFields, len(s.Fields))
	}
	switch s.Layout {
	case "tuple", "dict":
	case "scalar":
		if len(s.Fields) != 1 {
			return fault.New(fault.Invalid, "layout scalar has one field, not %d", len(s.Fields))
		}
	default:
		return fault.New(fault.Invalid, "layout %q: must be tuple, dict or scalar", s.Layout)
	}
	seen := make(map[string]bool, len(s.Fields))
	for _, f := range s.Fields {
		if err := f.check(); err != nil {
			return err
		}
		if seen[f.Name] {
			return fault.New(fault.Invalid, "two fields are named %q", f.Name)
		}
		seen[f.Name] = true
	}
	return nil
}

// LabelField is the field that class counts and the mixing score are taken from: an int named label or cls, else the
// only int; -1 if there is none.
func (s Schema) LabelField() int {
	only, ints := -1, 0
	for i, f := range s.Fields {
		if f.Kind != KindInt {
			continue
		}
		if f.Name == "label" || f.Name == "cls" {
			return i
		}
		only = i
		ints++
	}
	if ints != 1 {
		return -1
	}
	return only
}
