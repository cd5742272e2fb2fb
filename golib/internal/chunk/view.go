package chunk

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// Table is the header and sample table of a chunk in memory, without the payload: what a reader of single samples
// needs. It aliases the bytes it was parsed from and is safe for concurrent use. Sample numbers i run from 0 to Len-1;
// others panic, as an index out of a slice does.
type Table struct {
	b      []byte // header and table
	h      header
	c      columns
	entry  Entry
	layout *Layout
	even   uint64 // stored bytes of every sample, if even
	keys   []byte
}

// View is a whole chunk in memory. It aliases the bytes it was parsed from, is a value to copy freely, and safe for
// concurrent use. No look-up allocates.
type View struct {
	Table
	payload []byte
}

// Parse checks a chunk and returns a view of it: header against the index entry, table and payload against their
// checksums. b may be longer than the chunk (direct reads are padded).
func Parse(b []byte, e Entry, l *Layout) (View, error) {
	t, err := ParseTable(b, e, l)
	if err != nil {
		return View{}, err
	}
	start := uint64(HeaderSize) + uint64(t.h.table)
	if uint64(len(b)) < start+t.h.payload {
		return View{}, t.corrupt(-1, "is cut off: %d of %d bytes", len(b), e.Stored)
	}
	return t.view(b, Sum(b[start:start+t.h.payload]))
}

// ParseSummed is Parse for a payload, b[HeaderSize+e.TableBytes : e.Stored], whose CRC-32C the caller has computed,
// for instance piece by piece while the chunk landed.
func ParseSummed(b []byte, e Entry, l *Layout, payloadSum uint32) (View, error) {
	t, err := ParseTable(b, e, l)
	if err != nil {
		return View{}, err
	}
	return t.view(b, payloadSum)
}

// ParseUnsummed is Parse without a look at the payload's checksum, to find by Check which samples a bad one concerns.
func ParseUnsummed(b []byte, e Entry, l *Layout) (View, error) {
	t, err := ParseTable(b, e, l)
	if err != nil {
		return View{}, err
	}
	return t.view(b, t.h.paySum)
}

func (t Table) view(b []byte, payloadSum uint32) (View, error) {
	start := uint64(HeaderSize) + uint64(t.h.table)
	if uint64(len(b)) < start+t.h.payload {
		return View{}, t.corrupt(-1, "is cut off: %d of %d bytes", len(b), t.entry.Stored)
	}
	if payloadSum != t.h.paySum {
		return View{}, t.corrupt(-1, "payload: wrong checksum")
	}
	return View{Table: t, payload: b[start : start+t.h.payload]}, nil
}

// ParseTable checks header and table of a chunk; b needs to reach to HeaderSize + e.TableBytes only.
func ParseTable(b []byte, e Entry, l *Layout) (Table, error) {
	t := Table{entry: e, layout: l}
	h, err := parseHeader(b)
	if err != nil {
		return Table{}, e.at(err)
	}
	t.h, t.c = h, h.columns()
	end := uint64(HeaderSize) + uint64(h.table)
	switch {
	case Sum(b[:HeaderSize-4]) != e.Sum || !h.fits(e):
		return Table{}, t.corrupt(-1, "is another one than the index says")
	case uint64(len(b)) < end:
		return Table{}, t.corrupt(-1, "table is cut off: %d of %d bytes", len(b), end)
	case Sum(b[HeaderSize:end]) != h.tableSum:
		return Table{}, t.corrupt(-1, "table: wrong checksum")
	}
	t.b = b[:end:end]
	return t, t.check()
}

// check makes sure that no look-up can leave the chunk or ask for absurd memory, even if whoever wrote the chunk knew
// how to compute checksums. It is one pass over the columns: 1-2 ns a sample, once per chunk.
func (t *Table) check() error {
	n := int(t.h.samples)
	prefix := uint64(t.layout.prefix)
	if t.h.flags&flagEven != 0 {
		if t.even = t.h.payload / uint64(n); t.even < prefix || t.even != t.h.maxRaw {
			return t.corrupt(-1, "table: samples of %d bytes don't fit", t.even)
		}
	} else if err := t.checkEnds(n, prefix); err != nil {
		return err
	}
	if t.h.flags&flagKeys == 0 {
		return nil
	}
	t.keys = t.b[t.c.keyEnds+4*uint64(n):]
	last := uint32(0)
	for i := range n {
		end := binary.LittleEndian.Uint32(t.b[t.c.keyEnds+4*uint64(i):])
		if end < last || uint64(end) > uint64(len(t.keys)) {
			return t.corrupt(i, "key: impossible place")
		}
		last = end
	}
	return nil
}

func (t *Table) checkEnds(n int, prefix uint64) error {
	last, raw, largest := uint64(0), uint64(0), uint64(0)
	for i := range n {
		end := t.column(t.c.ends, i)
		if end > t.h.payload || end < last || end-last < prefix {
			return t.corrupt(i, "impossible place")
		}
		body := end - last - prefix
		if t.c.raws != 0 {
			size := t.column(t.c.raws, i)
			if size < body || size > maxRatio*body || size != body && size > maxCompress {
				return t.corrupt(i, "%d stored bytes can't be %d raw ones", body, size)
			}
			body = size
		}
		last = end
		raw += prefix + body
		largest = max(largest, prefix+body)
	}
	if last != t.h.payload || raw != t.h.raw || largest != t.h.maxRaw {
		return t.corrupt(-1, "table: samples don't add up to the chunk")
	}
	return nil
}

func (t *Table) column(at uint64, i int) uint64 {
	if t.h.flags&flagWide != 0 {
		return binary.LittleEndian.Uint64(t.b[at+8*uint64(i):])
	}
	return uint64(binary.LittleEndian.Uint32(t.b[at+4*uint64(i):]))
}

// corrupt names chunk, and sample i unless it is -1.
func (t *Table) corrupt(i int, format string, args ...any) error {
	return t.entry.corrupt(i, format, args...)
}

// Len is the number of samples.
func (t *Table) Len() int { return int(t.h.samples) }

// Entry is the index entry that the chunk was checked against.
func (t *Table) Entry() Entry { return t.entry }

// Numbers is what the chunk's own header says: its number, and that of its first sample, counted in its part.
func (t *Table) Numbers() (chunk, first uint64) { return t.h.number, t.h.first }

// place is where sample i lies in the payload.
func (t *Table) place(i int) (start, end uint64) {
	if uint(i) >= uint(t.h.samples) {
		panic("chunk: sample " + strconv.Itoa(i) + " of " + strconv.Itoa(t.Len()))
	}
	if t.c.ends == 0 {
		return t.even * uint64(i), t.even * uint64(i+1)
	}
	if i > 0 {
		start = t.column(t.c.ends, i-1)
	}
	return start, t.column(t.c.ends, i)
}

// Range is where stored sample i lies, counted from the chunk's first byte: for ranged reads.
func (t *Table) Range(i int) (offset, n uint64) {
	start, end := t.place(i)
	return HeaderSize + uint64(t.h.table) + start, end - start
}

// RawBody is the bytes of sample i's decoded body.
func (t *Table) RawBody(i int) uint64 {
	start, end := t.place(i)
	if t.c.raws != 0 {
		return t.column(t.c.raws, i)
	}
	return end - start - uint64(t.layout.prefix)
}

// Sum is the CRC-32C of sample i as stored.
func (t *Table) Sum(i int) uint32 { return binary.LittleEndian.Uint32(t.b[t.c.sums+4*uint64(i):]) }

// Source is the number of sample i in the source that was packed.
func (t *Table) Source(i int) uint64 {
	return binary.LittleEndian.Uint64(t.b[t.c.sources+8*uint64(i):])
}

// KeyBytes is the key of sample i, empty if its key is its source number; it aliases the table.
func (t *Table) KeyBytes(i int) []byte {
	if t.c.keyEnds == 0 {
		return nil
	}
	start := uint32(0)
	if i > 0 {
		start = binary.LittleEndian.Uint32(t.b[t.c.keyEnds+4*uint64(i-1):])
	}
	return t.keys[start:binary.LittleEndian.Uint32(t.b[t.c.keyEnds+4*uint64(i):])]
}

// Key is the key of sample i, a copy; the decimal source number where none was given.
func (t *Table) Key(i int) string {
	if key := t.KeyBytes(i); len(key) > 0 {
		return string(key)
	}
	return strconv.FormatUint(t.Source(i), 10)
}

// Sample checks stored sample i, read by itself (Range), and takes it apart as View.Stored does.
func (t *Table) Sample(i int, stored []byte) (prefix, body []byte, rawBody uint64, err error) {
	if start, end := t.place(i); uint64(len(stored)) != end-start || Sum(stored) != t.Sum(i) {
		return nil, nil, 0, t.corrupt(i, "wrong checksum")
	}
	p := t.layout.prefix
	return stored[:p:p], stored[p:], t.RawBody(i), nil
}

// Stored returns sample i as it is stored. len(body) < rawBody: body is an lz4 block (Decode).
func (v *View) Stored(i int) (prefix, body []byte, rawBody uint64) {
	start, end := v.place(i)
	mid := start + uint64(v.layout.prefix)
	rawBody = end - mid
	if v.c.raws != 0 {
		rawBody = v.column(v.c.raws, i)
	}
	return v.payload[start:mid:mid], v.payload[mid:end:end], rawBody
}

// Whole returns sample i as it goes to another node: prefix and body in one piece, how much of it is the prefix, the size
// of the decoded body, and the checksum of it all.
func (v *View) Whole(i int) (stored []byte, prefix int, rawBody uint64, sum uint32) {
	start, end := v.place(i)
	_, _, rawBody = v.Stored(i)
	return v.payload[start:end:end], v.layout.prefix, rawBody, v.Sum(i)
}

// Check compares sample i with its checksum.
func (v *View) Check(i int) error {
	if start, end := v.place(i); Sum(v.payload[start:end]) != v.Sum(i) {
		return v.corrupt(i, "wrong checksum")
	}
	return nil
}

// Body returns the decoded body of sample i: a part of the chunk if it is stored raw, else scratch (or new memory if
// scratch has too little capacity).
func (v *View) Body(i int, scratch []byte) ([]byte, error) {
	_, body, raw := v.Stored(i)
	if uint64(len(body)) == raw {
		return body, nil
	}
	if uint64(cap(scratch)) < raw {
		scratch = make([]byte, raw)
	}
	scratch = scratch[:raw]
	return scratch, v.Decode(i, scratch)
}

// Decode writes the body of sample i to dst, which has exactly its raw size.
func (v *View) Decode(i int, dst []byte) error {
	_, body, raw := v.Stored(i)
	if err := Decode(dst, body, raw); err != nil {
		return v.corrupt(i, "%s", err.Error())
	}
	return nil
}

// Decode writes a stored body, of a View or from elsewhere, to dst, which has exactly rawBody bytes.
func Decode(dst, body []byte, rawBody uint64) error {
	switch {
	case uint64(len(dst)) != rawBody || uint64(len(body)) > rawBody:
		return fault.New(fault.Corrupt, "body of %d bytes, stored in %d, does not fit %d", rawBody, len(body), len(dst))
	case uint64(len(body)) == rawBody:
		for len(dst) > 0 { // in pieces: copies of 1 MiB and more take a slow non-temporal path
			n := copy(dst[:min(len(dst), 512<<10)], body)
			dst, body = dst[n:], body[n:]
		}
	case !decompress(dst, body):
		return fault.New(fault.Corrupt, "lz4 block does not decode")
	}
	return nil
}

// CheckContent decodes every sample and compares the chunk with its content digest: the last word on whether it holds
// what was packed.
func (v *View) CheckContent() error {
	var scratch []byte
	sums := make([]byte, 0, 12*v.Len())
	for i := range v.Len() {
		if err := v.Check(i); err != nil {
			return err
		}
		prefix, _, raw := v.Stored(i)
		body, err := v.Body(i, scratch)
		if err != nil {
			return err
		}
		if uint64(cap(body)) > uint64(cap(scratch)) && v.c.raws != 0 && v.compressed(i) {
			scratch = body
		}
		sums = binary.LittleEndian.AppendUint64(sums, uint64(len(prefix))+raw)
		sums = binary.LittleEndian.AppendUint32(sums, SumMore(Sum(prefix), body))
	}
	if sha256.Sum256(sums) != v.h.content {
		return v.corrupt(-1, "content: wrong digest")
	}
	return nil
}

func (v *View) compressed(i int) bool {
	_, body, raw := v.Stored(i)
	return uint64(len(body)) != raw
}
