package chunk

import (
	"bytes"
	"encoding/binary"
)

// ForceWide makes a Builder write u64 columns, as for chunks of more than 4 GiB.
func ForceWide(b *Builder) { b.wide = true }

// Mend returns a copy of a chunk with its checksums put right, and the entry that its header asks for.
func Mend(b []byte) (Entry, []byte) {
	b = bytes.Clone(b)
	if len(b) < HeaderSize {
		return Entry{}, b
	}
	le := binary.LittleEndian
	copy(b, chunkMagic)
	le.PutUint32(b[8:], HeaderSize)
	clear(b[104:124])
	end := HeaderSize + uint64(le.Uint32(b[36:]))
	if end <= uint64(len(b)) {
		le.PutUint32(b[96:], Sum(b[HeaderSize:end]))
		if n := le.Uint64(b[40:]); n <= uint64(len(b))-end {
			le.PutUint32(b[100:], Sum(b[end:end+n]))
		}
	}
	le.PutUint32(b[124:], Sum(b[:124]))
	h, err := parseHeader(b)
	if err != nil {
		return Entry{}, b
	}
	return h.entry(Sum(b[:124])), b
}

// TableOf is header and table of a chunk without a codec whose samples end at these places, without its payload.
func TableOf(l *Layout, ends []uint64) ([]byte, Entry) {
	b := &Builder{layout: l, ends: ends, sources: make([]uint64, len(ends))}
	h := header{samples: uint32(len(ends)), raw: ends[len(ends)-1], payload: ends[len(ends)-1]}
	last := uint64(0)
	for _, end := range ends {
		h.maxRaw, last = max(h.maxRaw, end-last), end
	}
	b.choose(&h)
	if err := b.encodeTable(&h, ends, make([]uint32, len(ends))); err != nil {
		panic(err)
	}
	h.table, h.tableSum = uint32(len(b.table)-HeaderSize), Sum(b.table[HeaderSize:])
	e := Encoded{Head: b.table, h: h}
	return b.table, e.Place(0, 0)
}

// ValidJSON is validJSON for FuzzValidJSON.
var ValidJSON = validJSON
