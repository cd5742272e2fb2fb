package chunk_test

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
)

func TestKinds(t *testing.T) {
	for _, c := range []struct {
		kind  string
		text  string // as written again
		fixed int    // -1: variable
	}{
		{"int", "int", 8}, {"float?", "float?", 8}, {"bool", "bool", 1}, {"bool[...]", "bool[...]", -1}, {"bool[3]", "bool[3]", 3},
		{"int64", "int64", -1}, {" float32[3, 32,32] ", "float32[3,32,32]", 12288}, {"bfloat16[]", "bfloat16[]", 2}, {"complex128[2,]?", "complex128[2]?", 32},
		{"uint8[0,5]", "uint8[0,5]", 0}, {"image:raw", "image:raw", -1}, {"jpeg?", "jpeg?", -1}, {"uint16[...]", "uint16", -1},
	} {
		f, err := chunk.ParseField("x", c.kind)
		if err != nil {
			t.Errorf("%q: %v", c.kind, err)
			continue
		}
		n, fixed := f.FixedSize()
		if f.String() != c.text || fixed != (c.fixed >= 0) || fixed && n != c.fixed {
			t.Errorf("%q: %q, %d bytes, fixed %v", c.kind, f.String(), n, fixed)
		}
	}
	for _, kind := range []string{"", "?", "array", "int32[", "int32[x]", "int32[-1]", "int[3]", "float128", "uint8[99999999999,99999999999]", "image:"} {
		if f, err := chunk.ParseField("x", kind); !errors.Is(err, fault.Of(fault.Invalid)) {
			t.Errorf("%q: %+v, %v", kind, f, err)
		}
	}
	two := schema(t, "int", "int")
	two.Fields[1].Name = two.Fields[0].Name
	if two.Validate() == nil {
		t.Error("two fields of one name passed")
	}
}

func TestSampleRoundTrip(t *testing.T) {
	s := schema(t, "str", "int", "float32?", "uint8[4]?", "bytes?", "uint16", "bool")
	l := chunk.NewLayout(s)
	full := []chunk.Value{
		{Data: []byte("ä")}, {Data: make([]byte, 8)}, {Data: make([]byte, 24), Shape: []uint64{2, 3}}, {Data: []byte{1, 2, 3, 4}},
		{Data: nil}, {Data: []byte{1, 2}, Shape: nil}, {Data: []byte{1}},
	}
	lack := slices.Clone(full)
	lack[2], lack[3], lack[4] = chunk.Value{Missing: true}, chunk.Value{Missing: true}, chunk.Value{Missing: true}
	got, sizes := make([]chunk.Value, len(full)), make([]uint64, len(full))
	for _, vals := range [][]chunk.Value{full, lack} {
		raw, err := l.AppendSample([]byte("before"), vals)
		if err != nil {
			t.Fatal(err)
		}
		prefix, body := raw[6:6+l.Prefix()], raw[6+l.Prefix():]
		if err := l.Split(prefix, body, got); err != nil {
			t.Fatal(err)
		}
		if err := l.Sizes(prefix, uint64(len(body)), sizes); err != nil {
			t.Fatal(err)
		}
		for i := range vals {
			want := vals[i].Data
			if vals[i].Missing && s.Fields[i].Shape != nil {
				want = make([]byte, 4)
			}
			if !bytes.Equal(got[i].Data, want) || !slices.Equal(got[i].Shape, vals[i].Shape) || got[i].Missing != vals[i].Missing {
				t.Errorf("field %d: %+v, want %+v", i, got[i], vals[i])
			}
			shape := uint64(0)
			if s.Fields[i].Kind == chunk.KindArray && s.Fields[i].Shape == nil && !vals[i].Missing {
				shape = uint64(1 + 8*len(vals[i].Shape))
			}
			if sizes[i] != uint64(len(want))+shape {
				t.Errorf("field %d has %d bytes, Sizes says %d", i, len(want), sizes[i])
			}
		}
	}
	for i, bad := range []chunk.Value{{Missing: true}, {Data: make([]byte, 7)}, {Data: make([]byte, 4), Shape: []uint64{2}}, {Data: []byte{1}}} {
		vals := slices.Clone(full)
		vals[i] = bad
		if _, err := l.AppendSample(nil, vals); !errors.Is(err, fault.Of(fault.Invalid)) {
			t.Errorf("field %d: %v", i, err)
		}
	}
}

// FuzzSplit: whatever the bytes, Split and Sizes agree, don't panic, and what Split accepts is written again alike.
func FuzzSplit(f *testing.F) {
	s := chunk.Schema{Layout: "dict"}
	for _, kind := range []string{"str?", "float32", "int", "uint8[3]?", "bytes"} {
		field, err := chunk.ParseField(kind, kind)
		if err != nil {
			f.Fatal(err)
		}
		s.Fields = append(s.Fields, field)
	}
	l := chunk.NewLayout(s)
	good, err := l.AppendSample(nil, []chunk.Value{
		{Data: []byte("s")}, {Data: make([]byte, 8), Shape: []uint64{1, 2}}, {Data: make([]byte, 8)}, {Missing: true}, {Data: []byte("rest")},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		cut := min(l.Prefix(), len(raw))
		vals, sizes := make([]chunk.Value, len(s.Fields)), make([]uint64, len(s.Fields))
		err := l.Split(raw[:cut], raw[cut:], vals)
		if err == nil && l.Sizes(raw[:cut], uint64(len(raw)-cut), sizes) != nil {
			t.Error("Split accepts what Sizes refuses")
		}
		if err != nil {
			return
		}
		again, err := l.AppendSample(nil, vals)
		if err != nil || len(again) != len(raw) {
			t.Fatalf("%v: %x became %x", err, raw, again)
		}
		for i := range vals { // what lies under a missing fixed-size field is nobody's business
			if vals[i].Missing {
				vals[i].Data = make([]byte, len(vals[i].Data))
			}
		}
		twice := make([]chunk.Value, len(vals))
		if err := l.Split(again[:cut], again[cut:], twice); err != nil || !reflect.DeepEqual(vals, twice) {
			t.Errorf("%v: %v became %v", err, vals, twice)
		}
	})
}
