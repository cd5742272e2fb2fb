package chunk

import (
	"encoding/binary"
	"encoding/json"
	"io"

	"github.com/redox-loader/redox/golib/internal/fault"
)

const (
	shardMagic = "RDXSHARD"
	shardFixed = 96 // bytes before the JSON
	// maxHead bounds a shard header: a million class names.
	maxHead = 64 << 20
)

// ShardHeader is what a shard file begins with, in a multiple of Align bytes. It is written last, when the shard is
// whole: a file without one is no shard.
//
//	 0 magic "RDXSHARD"    8 u16 major    10 u16 minor   12 u32 header bytes   16 u64 requires   24 u64 optional
//	32 u32 number of the shard in its part              36 u32 flags: 1 = the part's last shard
//	40 u32 chunks         44 zeros       48 u64 samples  56 u64 bytes of the file
//	64 u64 number of its first chunk in its part        72 u64 stored number of its first sample in its part
//	80 u32 bytes of JSON  84 zeros       96 JSON (type Head), zeros   last 4: u32 CRC-32C of all before
type ShardHeader struct {
	Number     uint32
	Last       bool
	Chunks     uint32
	Samples    uint64
	Bytes      uint64
	FirstChunk uint64
	First      uint64
	Head       Head
}

// ShardHeaderSize is the bytes that a header with this JSON takes.
func ShardHeaderSize(head int) int { return int(pad(uint64(shardFixed+head+4), Align)) }

// EncodeHead is the JSON that shard headers carry.
func EncodeHead(h Head) ([]byte, error) {
	b, err := encodeJSON(h, "")
	if err != nil {
		return nil, err
	}
	if len(b) > maxHead/2 {
		return nil, fault.New(fault.Invalid, "%d bytes of classes and meta are too many", len(b))
	}
	return b, nil
}

// Encode makes the header; head is EncodeHead(h.Head).
func (h ShardHeader) Encode(head []byte) []byte {
	le := binary.LittleEndian
	b := make([]byte, ShardHeaderSize(len(head)))
	copy(b, shardMagic)
	le.PutUint16(b[8:], Major)
	le.PutUint16(b[10:], Minor)
	le.PutUint32(b[12:], uint32(len(b)))
	le.PutUint32(b[32:], h.Number)
	if h.Last {
		le.PutUint32(b[36:], 1)
	}
	le.PutUint32(b[40:], h.Chunks)
	le.PutUint64(b[48:], h.Samples)
	le.PutUint64(b[56:], h.Bytes)
	le.PutUint64(b[64:], h.FirstChunk)
	le.PutUint64(b[72:], h.First)
	le.PutUint32(b[80:], uint32(len(head)))
	copy(b[shardFixed:], head)
	le.PutUint32(b[len(b)-4:], Sum(b[:len(b)-4]))
	return b
}

// ReadShardHeader reads and checks the header of a shard file of `size` bytes, and returns how long it is.
func ReadShardHeader(r io.ReaderAt, size int64) (h ShardHeader, n int64, err error) {
	le := binary.LittleEndian
	b := make([]byte, Align)
	if size < Align {
		return h, 0, fault.New(fault.Corrupt, "shard is cut off: %d bytes", size)
	}
	if _, err := r.ReadAt(b, 0); err != nil {
		return h, 0, fault.Wrap(fault.IO, err, "read shard header")
	}
	if string(b[:8]) != shardMagic {
		return h, 0, fault.New(fault.Corrupt, "not a whole shard: its first bytes are %x", b[:8])
	}
	if n = int64(le.Uint32(b[12:])); n < Align || n > maxHead || n%Align != 0 || n > size {
		return h, 0, fault.New(fault.Corrupt, "shard header: impossible size %d", n)
	}
	if n > Align {
		b = append(b, make([]byte, n-Align)...)
		if _, err := r.ReadAt(b[Align:], Align); err != nil {
			return h, 0, fault.Wrap(fault.IO, err, "read shard header")
		}
	}
	if le.Uint32(b[n-4:]) != Sum(b[:n-4]) {
		return h, 0, fault.New(fault.Corrupt, "shard header: wrong checksum")
	}
	if le.Uint16(b[8:]) != Major || le.Uint64(b[16:]) != 0 {
		return h, 0, fault.New(fault.Version, "shard is of format %d.%d, features %#x", le.Uint16(b[8:]), le.Uint16(b[10:]), le.Uint64(b[16:]))
	}
	head := int64(le.Uint32(b[80:]))
	h = ShardHeader{
		Number: le.Uint32(b[32:]), Last: le.Uint32(b[36:])&1 != 0, Chunks: le.Uint32(b[40:]), Samples: le.Uint64(b[48:]),
		Bytes: le.Uint64(b[56:]), FirstChunk: le.Uint64(b[64:]), First: le.Uint64(b[72:]),
	}
	if head > n-shardFixed-4 || json.Unmarshal(b[shardFixed:shardFixed+head], &h.Head) != nil {
		return h, 0, fault.New(fault.Corrupt, "shard header: its JSON is not ours")
	}
	return h, n, nil
}

// ReadChunkHeader reads a chunk's own header at an offset, for scans that rebuild an index: the entry counts inside
// the part, without its shard.
func ReadChunkHeader(r io.ReaderAt, offset int64) (Entry, [32]byte, error) {
	b := make([]byte, HeaderSize)
	if _, err := r.ReadAt(b, offset); err != nil && err != io.EOF {
		return Entry{}, [32]byte{}, fault.Wrap(fault.IO, err, "read chunk header at %d", offset)
	}
	h, err := parseHeader(b)
	if err != nil {
		return Entry{}, [32]byte{}, err
	}
	e := h.entry(Sum(b[:HeaderSize-4]))
	e.Offset = uint64(offset)
	return e, h.content, nil
}

// Content is the digest of the chunk's raw samples, for fingerprints.
func (t *Table) Content() [32]byte { return t.h.content }

// Padded is where the next chunk starts.
func (e *Entry) Padded() uint64 { return pad(e.Offset+e.Stored, Align) }
