package wire

import (
	"encoding/binary"
	"math"
)

// MaxLength bounds the bytes of a sample that a frame can carry.
const MaxLength = math.MaxInt32

// Frame is the head of one sample; Length bytes follow, as they lie in the chunk.
type Frame struct {
	Ordinal  uint64 // among the incoming samples of the receiving rank
	Position int64  // in the global order
	Length   uint32
	Prefix   uint32 // how many of these bytes are the prefix
	Raw      uint64 // bytes of the decoded body
	CRC      uint32 // CRC-32C of the Length bytes
}

// FrameSize is the size of a frame's head.
const FrameSize = 8 + 8 + 4 + 4 + 8 + 4

// Append writes the head.
func (f Frame) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, f.Ordinal)
	b = binary.LittleEndian.AppendUint64(b, uint64(f.Position))
	b = binary.LittleEndian.AppendUint32(b, f.Length)
	b = binary.LittleEndian.AppendUint32(b, f.Prefix)
	b = binary.LittleEndian.AppendUint64(b, f.Raw)
	return binary.LittleEndian.AppendUint32(b, f.CRC)
}

// ParseFrame parses a head.
func ParseFrame(head []byte) (Frame, error) {
	if err := checkSize("the head of a frame", head, FrameSize); err != nil {
		return Frame{}, err
	}
	v := fields(head)
	f := Frame{Ordinal: v.u64(), Position: int64(v.u64()), Length: v.u32(), Prefix: v.u32(), Raw: v.u64(), CRC: v.u32()}
	if f.Position < 0 || f.Length > MaxLength || f.Prefix > f.Length || f.Raw > math.MaxInt64 {
		return Frame{}, malformed("a frame at position %d with %d bytes, %d of them prefix, %d decoded",
			f.Position, f.Length, f.Prefix, f.Raw)
	}
	return f, nil
}
