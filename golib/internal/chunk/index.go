package chunk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/redox-loader/redox/golib/internal/fault"
)

const (
	indexMagic  = "RDXINDEX"
	indexHeader = 64
	entrySize   = 64
	// minStored is the smallest chunk: one empty sample, a source number and a checksum.
	minStored = HeaderSize + 16
)

// Entry is a chunk as the index knows it; 64 bytes in memory and on disk.
type Entry struct {
	Shard      uint32 // place in Manifest.Shards
	Chunk      uint32 // its own number: the place in Index.Entries
	Offset     uint64 // in the shard file; a multiple of Align
	Stored     uint64 // bytes from there: header, table and payload, without the padding behind them
	Raw        uint64 // bytes of its decoded samples
	MaxRaw     uint64 // bytes of its largest decoded sample, prefix included
	First      uint64 // stored number of its first sample
	Samples    uint32
	TableBytes uint32 // payload starts at HeaderSize + TableBytes
	Sum        uint32 // CRC-32C of the chunk's header, and by that of all of it
	_          uint32
}

// Index is the chunk table of a data set, in stored order. Immutable once parsed.
type Index struct {
	Entries []Entry
}

// entry is what the header tells of the chunk's entry.
func (h *header) entry(sum uint32) Entry {
	return Entry{
		Chunk: uint32(h.number), Stored: HeaderSize + uint64(h.table) + h.payload, Raw: h.raw, MaxRaw: h.maxRaw,
		First: h.first, Samples: h.samples, TableBytes: h.table, Sum: sum,
	}
}

// fits compares all but the numbers, which count in the part in one and in the data set in the other.
func (h *header) fits(e Entry) bool {
	return h.samples == e.Samples && h.table == e.TableBytes && h.raw == e.Raw && h.maxRaw == e.MaxRaw &&
		HeaderSize+uint64(h.table)+h.payload == e.Stored
}

func (e *Entry) corrupt(i int, format string, args ...any) error {
	what, sample := fmt.Sprintf("shard %d, chunk %d", e.Shard, e.Chunk), int64(-1)
	if i >= 0 {
		sample = int64(e.First) + int64(i)
		what += fmt.Sprintf(", sample %d", sample)
	}
	return fault.New(fault.Corrupt, "%s: %s", what, fmt.Sprintf(format, args...)).At(int64(e.Shard), int64(e.Chunk), sample)
}

// at adds to an error where it happened.
func (e *Entry) at(err error) error {
	var f *fault.Error
	if errors.As(err, &f) {
		f.Message = fmt.Sprintf("shard %d, chunk %d: %s", e.Shard, e.Chunk, f.Message)
		f.At(int64(e.Shard), int64(e.Chunk), -1)
	}
	return err
}

// Samples is the number of samples in all chunks.
func (x *Index) Samples() uint64 {
	if len(x.Entries) == 0 {
		return 0
	}
	last := &x.Entries[len(x.Entries)-1]
	return last.First + uint64(last.Samples)
}

// Append encodes the index, the bytes of chunks.idx:
//
//	 0 magic "RDXINDEX"   8 u16 major   10 u16 minor   12 u32 bytes of an entry, 64   16 u64 requires   24 u64 optional
//	32 u64 entries       40 u64 samples               48 zeros     56 u32 CRC-32C of the entries
//	60 u32 CRC-32C of bytes 0..60
//
// and then the entries, field by field as in type Entry.
func (x *Index) Append(dst []byte) []byte {
	le := binary.LittleEndian
	at := len(dst)
	dst = append(dst, make([]byte, indexHeader)...)
	for i := range x.Entries {
		e := &x.Entries[i]
		dst = le.AppendUint32(dst, e.Shard)
		dst = le.AppendUint32(dst, e.Chunk)
		for _, v := range [...]uint64{e.Offset, e.Stored, e.Raw, e.MaxRaw, e.First} {
			dst = le.AppendUint64(dst, v)
		}
		for _, v := range [...]uint32{e.Samples, e.TableBytes, e.Sum, 0} {
			dst = le.AppendUint32(dst, v)
		}
	}
	h := dst[at : at+indexHeader]
	copy(h, indexMagic)
	le.PutUint16(h[8:], Major)
	le.PutUint16(h[10:], Minor)
	le.PutUint32(h[12:], entrySize)
	le.PutUint64(h[32:], uint64(len(x.Entries)))
	le.PutUint64(h[40:], x.Samples())
	le.PutUint32(h[56:], Sum(dst[at+indexHeader:]))
	le.PutUint32(h[60:], Sum(h[:60]))
	return dst
}

// ParseIndex reads chunks.idx and checks that the entries follow one another without gaps or overlaps.
func ParseIndex(b []byte) (Index, error) {
	le := binary.LittleEndian
	switch {
	case len(b) < indexHeader:
		return Index{}, fault.New(fault.Corrupt, "chunk index is cut off: %d bytes", len(b))
	case string(b[:8]) != indexMagic:
		return Index{}, fault.New(fault.Format, "not a chunk index: its first bytes are %x", b[:8])
	case le.Uint32(b[60:]) != Sum(b[:60]):
		return Index{}, fault.New(fault.Corrupt, "chunk index: wrong checksum of its header")
	case le.Uint16(b[8:]) != Major || le.Uint64(b[16:]) != 0 || le.Uint32(b[12:]) != entrySize:
		return Index{}, fault.New(fault.Version, "chunk index is of format %d.%d, features %#x; this reads %d.%d", le.Uint16(b[8:]),
			le.Uint16(b[10:]), le.Uint64(b[16:]), Major, Minor)
	}
	n := le.Uint64(b[32:])
	if n > math.MaxUint32 || n != uint64(len(b)-indexHeader)/entrySize || (len(b)-indexHeader)%entrySize != 0 {
		return Index{}, fault.New(fault.Corrupt, "chunk index of %d entries has %d bytes", n, len(b))
	}
	if Sum(b[indexHeader:]) != le.Uint32(b[56:]) {
		return Index{}, fault.New(fault.Corrupt, "chunk index: wrong checksum")
	}
	x := Index{Entries: make([]Entry, n)}
	for i := range x.Entries {
		x.Entries[i] = parseEntry(b[indexHeader+entrySize*i:])
	}
	if x.Samples() != le.Uint64(b[40:]) {
		return Index{}, fault.New(fault.Corrupt, "chunk index: its entries don't add up to its %d samples", le.Uint64(b[40:]))
	}
	return x, x.check()
}

func parseEntry(b []byte) Entry {
	le := binary.LittleEndian
	return Entry{
		Shard: le.Uint32(b), Chunk: le.Uint32(b[4:]), Offset: le.Uint64(b[8:]), Stored: le.Uint64(b[16:]), Raw: le.Uint64(b[24:]),
		MaxRaw: le.Uint64(b[32:]), First: le.Uint64(b[40:]), Samples: le.Uint32(b[48:]), TableBytes: le.Uint32(b[52:]), Sum: le.Uint32(b[56:]),
	}
}

func (x *Index) check() error {
	var last Entry
	for i, e := range x.Entries {
		end := uint64(Align) // the shard header comes first
		if i > 0 && e.Shard == last.Shard {
			end = pad(last.Offset+last.Stored, Align)
		}
		payload := e.Stored - HeaderSize - uint64(e.TableBytes)
		switch {
		case e.Chunk != uint32(i) || e.First != last.First+uint64(last.Samples):
			return e.corrupt(-1, "index: out of order")
		case e.Shard != last.Shard && (i == 0 || e.Shard != last.Shard+1):
			return e.corrupt(-1, "index: a shard is left out")
		case e.Offset%Align != 0 || e.Offset < end || e.Offset > 1<<62:
			return e.corrupt(-1, "index: impossible offset %d", e.Offset)
		case e.Stored < minStored || e.Stored > maxFixed || e.Stored < HeaderSize+uint64(e.TableBytes):
			return e.corrupt(-1, "index: impossible size %d", e.Stored)
		case e.Samples == 0 || e.Samples > MaxSamples || uint64(e.TableBytes) < 12*uint64(e.Samples):
			return e.corrupt(-1, "index: impossible number of samples %d", e.Samples)
		case e.MaxRaw > e.Raw || e.Raw > maxRatio*(payload+uint64(e.Samples)):
			return e.corrupt(-1, "index: impossible raw size %d", e.Raw)
		}
		last = e
	}
	return nil
}
