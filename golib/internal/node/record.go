package node

import (
	"unsafe"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
)

// record is how samples are taken apart into the columns that a run wants.
type record struct {
	layout *chunk.Layout
	fields []field
	total  int // fields in the schema
	// fixed: every wanted field has one size, so batches need no look at sizes.
	fixed bool
	// plain: the body is nothing but fixed-size fields that cannot be missing: columns are copied at known places.
	plain bool
	// whole: the schema is one field, and the body is its bytes: lz4 decodes straight into the column.
	whole bool
	// shapes: an array of any shape is wanted: its size is known from the body only.
	shapes bool
}

// field is one wanted column.
type field struct {
	slot     int // its place in the schema
	fixed    bool
	at, size int // in the body, if fixed
	shaped   bool
	nullable bool
}

// newRecord works out the wanted fields, given by their places in the schema; nil means all.
func newRecord(s chunk.Schema, l *chunk.Layout, want []int) (*record, error) {
	r := &record{layout: l, total: len(s.Fields), fixed: true}
	if want == nil {
		for i := range s.Fields {
			want = append(want, i)
		}
	}
	if len(want) == 0 {
		return nil, fault.New(fault.Invalid, "fields is empty: at least one is needed")
	}
	for _, i := range want {
		if i < 0 || i >= len(s.Fields) {
			return nil, fault.New(fault.Invalid, "field number %d: there are %d", i, len(s.Fields))
		}
		f := field{slot: i, nullable: s.Fields[i].Nullable}
		f.at, f.size, f.fixed = l.Fixed(i)
		f.shaped = s.Fields[i].Kind == chunk.KindArray && !f.fixed
		r.fields = append(r.fields, f)
		r.fixed = r.fixed && f.fixed
		r.shapes = r.shapes || f.shaped
	}
	_, allFixed := l.Body()
	r.plain = allFixed && l.Prefix() == 0
	r.whole = len(s.Fields) == 1 && l.Prefix() == 0 && !r.shapes
	return r, nil
}

// stored is one sample as it lies in a chunk or came by itself.
type stored struct {
	prefix, body []byte
	raw          uint64 // bytes of the decoded body
}

// scratch is a worker's memory for taking samples apart.
type scratch struct {
	body []byte
	vals []chunk.Value
	size []uint64
}

func newScratch(r *record) *scratch {
	s := &scratch{vals: make([]chunk.Value, r.total), size: make([]uint64, r.total)}
	if r.shapes {
		for i := range s.vals {
			s.vals[i].Shape = make([]uint64, 0, 8)
		}
	}
	return s
}

// decoded returns the body's raw bytes: the chunk's own if they are stored raw.
func (r *record) decoded(s stored, sc *scratch) ([]byte, error) {
	if uint64(len(s.body)) == s.raw {
		return s.body, nil
	}
	if uint64(cap(sc.body)) < s.raw {
		sc.body = make([]byte, s.raw)
	}
	return sc.body[:s.raw], chunk.Decode(sc.body[:s.raw], s.body, s.raw)
}

// sizes puts the bytes of every wanted field into out, and returns the largest number of dimensions.
func (r *record) sizes(s stored, sc *scratch, out []uint64) (ndim int, err error) {
	if r.whole {
		out[0] = s.raw
		return 0, nil
	}
	if !r.shapes {
		if err := r.layout.Sizes(s.prefix, s.raw, sc.size); err != nil {
			return 0, err
		}
		for k := range r.fields {
			out[k] = sc.size[r.fields[k].slot]
		}
		return 0, nil
	}
	body, err := r.decoded(s, sc)
	if err != nil {
		return 0, err
	}
	if err := r.layout.Split(s.prefix, body, sc.vals); err != nil {
		return 0, err
	}
	for k := range r.fields {
		v := &sc.vals[r.fields[k].slot]
		out[k] = uint64(len(v.Data))
		ndim = max(ndim, len(v.Shape))
	}
	return ndim, nil
}

// put writes one sample to place i of the columns, whose offsets are set.
func (r *record) put(cols []Column, i int, s stored, sc *scratch) error {
	if r.whole && !(r.fields[0].fixed && s.raw != uint64(r.fields[0].size)) {
		return chunk.Decode(r.fields[0].place(&cols[0], i), s.body, s.raw)
	}
	body, err := r.decoded(s, sc)
	if err != nil {
		return err
	}
	if r.plain {
		if n, _ := r.layout.Body(); len(body) != n {
			return fault.New(fault.Corrupt, "body of %d bytes, not %d", len(body), n)
		}
		for k := range r.fields {
			f := &r.fields[k]
			if f.size == 8 {
				copy(cols[k].Data[8*i:8*i+8], body[f.at:f.at+8])
				continue
			}
			copyBytes(cols[k].Data[f.size*i:f.size*i+f.size], body[f.at:f.at+f.size])
		}
		return nil
	}
	if err := r.layout.Split(s.prefix, body, sc.vals); err != nil {
		return err
	}
	for k := range r.fields {
		f, col, v := &r.fields[k], &cols[k], &sc.vals[r.fields[k].slot]
		dst := f.place(col, i)
		if len(dst) != len(v.Data) {
			return fault.New(fault.Corrupt, "field of %d bytes, not %d", len(v.Data), len(dst))
		}
		copyBytes(dst, v.Data)
		if col.Valid != nil {
			col.Valid[i] = 1
			if v.Missing {
				col.Valid[i] = 0
			}
		}
		if col.Shape != nil {
			dims := col.Shape[i*col.ShapeCap : (i+1)*col.ShapeCap]
			for d := range dims {
				dims[d] = noDim
			}
			copy(dims, v.Shape)
		}
	}
	return nil
}

// place is where sample i of the field goes.
func (f *field) place(c *Column, i int) []byte {
	if f.fixed {
		return c.Data[f.size*i : f.size*i+f.size]
	}
	if c.Parts != nil {
		return unsafe.Slice((*byte)(c.Parts[i]), c.Offsets[i+1]-c.Offsets[i])
	}
	return c.Data[c.Offsets[i]:c.Offsets[i+1]]
}

// again repeats sample from at place to, in memory that is laid out for it.
func (r *record) again(cols []Column, to, from int) {
	for k := range r.fields {
		f, col := &r.fields[k], &cols[k]
		copyBytes(f.place(col, to), f.place(col, from))
		if col.Valid != nil {
			col.Valid[to] = col.Valid[from]
		}
		if col.Shape != nil {
			copy(col.Shape[to*col.ShapeCap:(to+1)*col.ShapeCap], col.Shape[from*col.ShapeCap:])
		}
	}
}

// keep saves what a job has written to columns that the next try may not have. What is bad is not written.
func (r *record) keep(j *job, cols []Column) {
	if j.written == 0 {
		return
	}
	b := Batch{Fields: make([]Column, len(r.fields))}
	r.setNeeds(&b, j)
	for k := range r.fields {
		f, c := &r.fields[k], &b.Fields[k]
		c.Data = make([]byte, c.Need)
		if !f.fixed {
			c.Offsets = make([]uint64, j.n+1)
		}
		if f.shaped && cols[k].Shape != nil {
			c.ShapeCap = c.NDim
			c.Shape = make([]uint64, j.n*c.NDim)
		}
		if f.nullable && cols[k].Valid != nil {
			c.Valid = make([]byte, j.n)
		}
	}
	r.setOffsets(&b, j)
	r.move(j, b.Fields, cols)
	j.kept = b.Fields
}

// restore puts what was kept to its places. Where more is wanted than was, the job is done from its beginning.
func (r *record) restore(j *job, cols []Column) {
	kept := j.kept
	j.kept = nil
	for k := range kept {
		f, wanted, had := &r.fields[k], &cols[k], &kept[k]
		if f.shaped && wanted.Shape != nil && had.Shape == nil || f.nullable && wanted.Valid != nil && had.Valid == nil {
			j.written = 0
			return
		}
	}
	if kept != nil {
		r.move(j, cols, kept)
	}
}

// move copies the written samples of a job.
func (r *record) move(j *job, to, from []Column) {
	for i := range j.ops[:j.written] {
		at := int(j.ops[i].dest)
		if at < 0 || j.bad[at] {
			continue
		}
		for k := range r.fields {
			f, t, s := &r.fields[k], &to[k], &from[k]
			copyBytes(f.place(t, at), f.place(s, at))
			if t.Valid != nil && s.Valid != nil {
				t.Valid[at] = s.Valid[at]
			}
			if t.Shape != nil && s.Shape != nil {
				copyShape(t, s, at)
			}
		}
	}
}

// copyShape copies the dimensions of a sample; there may be room for more, or for fewer.
func copyShape(to, from *Column, at int) {
	dims := to.Shape[at*to.ShapeCap : (at+1)*to.ShapeCap]
	for d := range dims {
		dims[d] = noDim
	}
	copy(dims, from.Shape[at*from.ShapeCap:(at+1)*from.ShapeCap])
}

// copyBytes is copy in pieces: from 1 MiB on the runtime bypasses the cache, which is five times slower here.
func copyBytes(dst, src []byte) {
	const piece = 512 << 10
	for len(src) > piece {
		copy(dst, src[:piece])
		dst, src = dst[piece:], src[piece:]
	}
	copy(dst, src)
}
