package chunk

import (
	"bytes"
	"encoding/binary"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// Version of the format: a reader refuses another major version, and any feature bit of "requires" that it lacks.
const (
	Major = 1
	Minor = 0
)

// Align is what chunks and shard files are padded to, so that direct reads work.
const Align = 4096

// HeaderSize is the bytes of a chunk's header.
const HeaderSize = 128

// MaxSamples is the most samples of one chunk, whatever their size: it bounds tables, and positions inside a chunk.
const MaxSamples = 1 << 20

const chunkMagic = "RDXCHUNK"

// Flags of a chunk: which columns its table has.
const (
	flagPacked = 1 << iota // a body may be compressed: raw sizes
	flagWide               // ends and raw sizes are u64, not u32
	flagKeys               // samples have keys
	flagEven               // all samples take the same bytes, nothing is compressed: no ends
	flagKnown  = 1<<iota - 1
)

// header is the first HeaderSize bytes of a chunk, all little-endian:
//
//	 0 magic "RDXCHUNK"        8 u32 header bytes, 128     12 u32 flags
//	16 u64 number of the chunk in its part                24 u64 stored number of its first sample in its part
//	32 u32 samples            36 u32 table bytes          40 u64 payload bytes
//	48 u64 raw bytes          56 u64 raw bytes of the largest sample
//	64 [32] content: SHA-256 over (u64 raw bytes, u32 CRC-32C of them) of every sample
//	96 u32 CRC-32C of the table    100 u32 CRC-32C of the payload    104 zeros    124 u32 CRC-32C of bytes 0..124
type header struct {
	flags            uint32
	number, first    uint64
	samples, table   uint32
	payload          uint64
	raw, maxRaw      uint64
	content          [32]byte
	tableSum, paySum uint32
}

func (h *header) append(dst []byte) []byte {
	at := len(dst)
	le := binary.LittleEndian
	dst = append(dst, chunkMagic...)
	dst = le.AppendUint32(dst, HeaderSize)
	dst = le.AppendUint32(dst, h.flags)
	dst = le.AppendUint64(dst, h.number)
	dst = le.AppendUint64(dst, h.first)
	dst = le.AppendUint32(dst, h.samples)
	dst = le.AppendUint32(dst, h.table)
	dst = le.AppendUint64(dst, h.payload)
	dst = le.AppendUint64(dst, h.raw)
	dst = le.AppendUint64(dst, h.maxRaw)
	dst = append(dst, h.content[:]...)
	dst = le.AppendUint32(dst, h.tableSum)
	dst = le.AppendUint32(dst, h.paySum)
	dst = append(dst, make([]byte, 20)...)
	return le.AppendUint32(dst, Sum(dst[at:]))
}

// parseHeader checks a chunk's header by itself: magic, checksum, and sizes that fit together.
func parseHeader(b []byte) (h header, err error) {
	le := binary.LittleEndian
	switch {
	case len(b) < HeaderSize:
		return h, fault.New(fault.Corrupt, "chunk header is cut off: %d of %d bytes", len(b), HeaderSize)
	case string(b[:8]) != chunkMagic:
		return h, fault.New(fault.Corrupt, "no chunk here: its first bytes are %x", b[:8])
	case le.Uint32(b[124:]) != Sum(b[:124]):
		return h, fault.New(fault.Corrupt, "chunk header: wrong checksum")
	case le.Uint32(b[8:]) != HeaderSize || !bytes.Equal(b[104:124], make([]byte, 20)):
		return h, fault.New(fault.Version, "chunk header is of a newer format")
	}
	h = header{
		flags: le.Uint32(b[12:]), number: le.Uint64(b[16:]), first: le.Uint64(b[24:]), samples: le.Uint32(b[32:]),
		table: le.Uint32(b[36:]), payload: le.Uint64(b[40:]), raw: le.Uint64(b[48:]), maxRaw: le.Uint64(b[56:]),
		content: [32]byte(b[64:96]), tableSum: le.Uint32(b[96:]), paySum: le.Uint32(b[100:]),
	}
	return h, h.check()
}

func (h *header) check() error {
	n := uint64(h.samples)
	switch {
	case h.flags&^flagKnown != 0:
		return fault.New(fault.Version, "chunk has flags %#x of a newer format", h.flags)
	case n == 0 || n > MaxSamples:
		return fault.New(fault.Corrupt, "chunk has %d samples, must be 1 to %d", n, MaxSamples)
	case h.payload > maxFixed*2 || h.raw < h.payload && h.flags&flagPacked == 0 || h.raw > maxRatio*(h.payload+n):
		return fault.New(fault.Corrupt, "chunk of %d payload bytes can't have %d raw ones", h.payload, h.raw)
	case h.maxRaw > h.raw || h.maxRaw*n < h.raw && h.maxRaw < 1<<40:
		return fault.New(fault.Corrupt, "chunk of %d raw bytes can't have a largest sample of %d", h.raw, h.maxRaw)
	case h.flags&flagEven != 0 && (h.flags&(flagPacked|flagWide) != 0 || h.payload%n != 0 || h.payload != h.raw):
		return fault.New(fault.Corrupt, "chunk of %d samples can't have %d bytes in even pieces", n, h.payload)
	case uint64(h.table) < h.columns().end || h.flags&flagKeys == 0 && uint64(h.table) != pad(h.columns().end, 8):
		return fault.New(fault.Corrupt, "chunk's table of %d bytes is too short or too long for %d samples", h.table, n)
	}
	return nil
}

// columns is where the columns of a table start, counted from the chunk's start; 0: there is no such column.
//
//	u64 sources | u32/u64 ends (unless even) | u32/u64 raw body bytes (if packed) | u32 CRC-32C | u32 key ends (if
//	keys) | key bytes | zeros up to a multiple of 8
type columns struct {
	sources, ends, raws, sums, keyEnds uint64
	end                                uint64 // of the table, without keys and padding; counted from its own start
}

func (h *header) columns() (c columns) {
	n, size, at := uint64(h.samples), uint64(4), uint64(HeaderSize)
	if h.flags&flagWide != 0 {
		size = 8
	}
	c.sources, at = at, at+8*n
	if h.flags&flagEven == 0 {
		c.ends, at = at, at+size*n
	}
	if h.flags&flagPacked != 0 {
		c.raws, at = at, at+size*n
	}
	c.sums, at = at, at+4*n
	if h.flags&flagKeys != 0 {
		c.keyEnds, at = at, at+4*n
	}
	c.end = at - HeaderSize
	return c
}

func pad(n, to uint64) uint64 { return (n + to - 1) / to * to }
