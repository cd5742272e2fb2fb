package chunk

import (
	"encoding/binary"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// Value is one field of one sample.
type Value struct {
	Data    []byte
	Shape   []uint64 // of arrays of any shape
	Missing bool     // of nullable fields; Data is then empty, or zeros for fixed-size fields
}

// Layout is a schema worked out into places of bytes. One sample is a prefix, which is never compressed and tells
// the size of every field, and a body with the fields. Immutable; any number of goroutines may use one.
//
//	prefix: validity bitmap (one bit for each nullable field), u64 length of every variable field but the last
//	body:   the fixed-size fields packed in schema order, then the variable fields in schema order
type Layout struct {
	slots     []slot
	variables []int // slots of variable size, in order
	texts     []int // slots of the kinds that CheckText looks at
	prefix    int   // bytes
	bitmap    int   // bytes of it
	fixed     int   // bytes of all fixed-size fields
}

// slot is where a field lies.
type slot struct {
	name  string
	fixed bool
	at    int // fixed: offset in the body; variable: which one of the variable fields
	size  int // fixed: bytes
	bit   int // place in the validity bitmap; -1: never missing
	item  int // arrays of any shape: bytes of an element; 0 for all other fields
	json  bool
}

// NewLayout works out a valid schema (Schema.Validate); another one panics.
func NewLayout(s Schema) *Layout {
	if err := s.Validate(); err != nil {
		panic(err)
	}
	l := &Layout{slots: make([]slot, len(s.Fields))}
	nullable := 0
	for i, f := range s.Fields {
		p := slot{name: f.Name, bit: -1, json: f.Kind == KindJSON}
		if p.json || f.Kind == KindStr {
			l.texts = append(l.texts, i)
		}
		if f.Nullable {
			p.bit = nullable
			nullable++
		}
		if p.size, p.fixed = f.FixedSize(); p.fixed {
			p.at = l.fixed
			l.fixed += p.size
		} else {
			if f.Kind == KindArray {
				p.item = f.ItemSize()
			}
			p.at = len(l.variables)
			l.variables = append(l.variables, i)
		}
		l.slots[i] = p
	}
	l.bitmap = (nullable + 7) / 8
	l.prefix = l.bitmap + 8*max(0, len(l.variables)-1)
	return l
}

// Fields is the number of fields.
func (l *Layout) Fields() int { return len(l.slots) }

// Prefix is the bytes of every sample's prefix.
func (l *Layout) Prefix() int { return l.prefix }

// Body is the bytes of every sample's body, if they are the same for all.
func (l *Layout) Body() (n int, fixed bool) { return l.fixed, len(l.variables) == 0 }

// Fixed is where a fixed-size field lies in every body.
func (l *Layout) Fixed(field int) (offset, n int, fixed bool) {
	p := l.slots[field]
	return p.at, p.size, p.fixed
}

// AppendSample appends one raw sample, prefix and body. Values that don't fit the schema are fault.Invalid.
func (l *Layout) AppendSample(dst []byte, vals []Value) ([]byte, error) {
	dst, err := l.AppendPrefix(dst, vals)
	if err != nil {
		return dst, err
	}
	return l.AppendBody(dst, vals), nil
}

// AppendPrefix checks the values and appends the prefix.
func (l *Layout) AppendPrefix(dst []byte, vals []Value) ([]byte, error) {
	if len(vals) != len(l.slots) {
		return dst, fault.New(fault.Invalid, "a sample has %d fields, not %d", len(l.slots), len(vals))
	}
	at := len(dst)
	dst = append(dst, make([]byte, l.bitmap)...)
	for i := range l.slots {
		p, v := &l.slots[i], &vals[i]
		if err := p.fits(v); err != nil {
			return dst[:at], err
		}
		if p.bit >= 0 && !v.Missing {
			dst[at+p.bit/8] |= 1 << (p.bit % 8)
		}
		if !p.fixed && p.at < len(l.variables)-1 {
			dst = binary.LittleEndian.AppendUint64(dst, p.length(v))
		}
	}
	return dst, nil
}

// AppendBody appends the body of values that AppendPrefix has accepted.
func (l *Layout) AppendBody(dst []byte, vals []Value) []byte {
	for i := range l.slots {
		if p := &l.slots[i]; p.fixed {
			if vals[i].Missing {
				dst = append(dst, make([]byte, p.size)...)
			} else {
				dst = append(dst, vals[i].Data...)
			}
		}
	}
	for _, i := range l.variables {
		v := &vals[i]
		if v.Missing {
			continue
		}
		if l.slots[i].item > 0 {
			dst = append(dst, byte(len(v.Shape)))
			for _, d := range v.Shape {
				dst = binary.LittleEndian.AppendUint64(dst, d)
			}
		}
		dst = append(dst, v.Data...)
	}
	return dst
}

func (p *slot) length(v *Value) uint64 {
	switch {
	case v.Missing:
		return 0
	case p.item > 0:
		return uint64(1 + 8*len(v.Shape) + len(v.Data))
	}
	return uint64(len(v.Data))
}

func (p *slot) fits(v *Value) error {
	switch {
	case v.Missing && p.bit < 0:
		return fault.New(fault.Invalid, "field %q is missing, and its kind does not allow that (add a ?)", p.name)
	case v.Missing:
		return nil
	case p.fixed && len(v.Data) != p.size:
		return fault.New(fault.Invalid, "field %q has %d bytes, not %d", p.name, len(v.Data), p.size)
	case p.item == 0:
		return nil
	case len(v.Shape) > maxDims:
		return fault.New(fault.Invalid, "field %q has %d dimensions, at most %d", p.name, len(v.Shape), maxDims)
	}
	if n, ok := product(v.Shape, p.item); !ok || n != len(v.Data) {
		return fault.New(fault.Invalid, "field %q has %d bytes, which is not shape %v x %d", p.name, len(v.Data), v.Shape, p.item)
	}
	return nil
}

// Sizes tells the bytes of every field from the prefix and the raw size of the body, without the body. For arrays of
// any shape that includes their 1 + 8·dimensions bytes of shape, which only the body tells.
func (l *Layout) Sizes(prefix []byte, bodyRaw uint64, out []uint64) error {
	if len(prefix) != l.prefix || len(out) < len(l.slots) {
		return fault.New(fault.Corrupt, "a sample's prefix has %d bytes, not %d", len(prefix), l.prefix)
	}
	if bodyRaw < uint64(l.fixed) {
		return fault.New(fault.Corrupt, "a sample's body has %d bytes, at least %d are needed", bodyRaw, l.fixed)
	}
	left := bodyRaw - uint64(l.fixed)
	for i := range l.slots {
		p := &l.slots[i]
		switch {
		case p.fixed:
			out[i] = uint64(p.size)
		case p.at == len(l.variables)-1:
			out[i] = left
		default:
			n := binary.LittleEndian.Uint64(prefix[l.bitmap+8*p.at:])
			if n > left {
				return fault.New(fault.Corrupt, "field %q has %d bytes, but only %d are left of the sample", p.name, n, left)
			}
			out[i] = n
			left -= n
		}
		if !p.fixed && out[i] > 0 && l.missing(prefix, p) {
			return fault.New(fault.Corrupt, "field %q is missing, yet has %d bytes", p.name, out[i])
		}
	}
	if len(l.variables) == 0 && left != 0 {
		return fault.New(fault.Corrupt, "a sample has %d bytes beyond its fields", left)
	}
	return nil
}

// Split finds the fields of a sample; the values alias body. It allocates nothing once the Shapes in out have room.
func (l *Layout) Split(prefix, body []byte, out []Value) error {
	if len(prefix) != l.prefix || len(out) < len(l.slots) {
		return fault.New(fault.Corrupt, "a sample's prefix has %d bytes, not %d", len(prefix), l.prefix)
	}
	if len(body) < l.fixed {
		return fault.New(fault.Corrupt, "a sample's body has %d bytes, at least %d are needed", len(body), l.fixed)
	}
	rest := body[l.fixed:]
	for i := range l.slots {
		p, v := &l.slots[i], &out[i]
		v.Shape = v.Shape[:0]
		v.Missing = l.missing(prefix, p)
		if p.fixed {
			v.Data = body[p.at : p.at+p.size : p.at+p.size]
			continue
		}
		n := uint64(len(rest))
		if p.at < len(l.variables)-1 {
			if n = binary.LittleEndian.Uint64(prefix[l.bitmap+8*p.at:]); n > uint64(len(rest)) {
				return fault.New(fault.Corrupt, "field %q has %d bytes, but only %d are left of the sample", p.name, n, len(rest))
			}
		}
		v.Data, rest = rest[:n:n], rest[n:]
		switch {
		case v.Missing && n > 0:
			return fault.New(fault.Corrupt, "field %q is missing, yet has %d bytes", p.name, n)
		case p.item > 0 && !v.Missing:
			if err := p.splitShape(v); err != nil {
				return err
			}
		}
	}
	if len(rest) != 0 {
		return fault.New(fault.Corrupt, "a sample has %d bytes beyond its fields", len(rest))
	}
	return nil
}

func (l *Layout) missing(prefix []byte, p *slot) bool {
	return p.bit >= 0 && prefix[p.bit/8]&(1<<(p.bit%8)) == 0
}

// splitShape takes the shape off the front of an array's bytes.
func (p *slot) splitShape(v *Value) error {
	if len(v.Data) < 1 || v.Data[0] > maxDims || len(v.Data) < 1+8*int(v.Data[0]) {
		return fault.New(fault.Corrupt, "field %q: %d bytes are too few for its shape", p.name, len(v.Data))
	}
	dims, data := v.Data[1:1+8*int(v.Data[0])], v.Data[1+8*int(v.Data[0]):]
	for ; len(dims) > 0; dims = dims[8:] {
		v.Shape = append(v.Shape, binary.LittleEndian.Uint64(dims))
	}
	v.Data = data
	if n, ok := product(v.Shape, p.item); !ok || n != len(data) {
		return fault.New(fault.Corrupt, "field %q has %d bytes, which is not shape %v x %d", p.name, len(data), v.Shape, p.item)
	}
	return nil
}
