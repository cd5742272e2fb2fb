package wire

import "encoding/binary"

// Stream is the head of a data stream. All samples that rank By sends to rank To in a lane go through one stream, in the
// order of their ordinals.
type Stream struct {
	Lane Lane
	To   uint32 // rank, of the receiver's node
	By   uint32 // rank, of the sender's node
}

// StreamSize is the size of a data stream's head.
const StreamSize = laneSize + 4 + 4

// Append writes the head.
func (s Stream) Append(b []byte) []byte {
	b = s.Lane.append(b)
	b = binary.LittleEndian.AppendUint32(b, s.To)
	return binary.LittleEndian.AppendUint32(b, s.By)
}

// ParseStream parses a head.
func ParseStream(head []byte) (Stream, error) {
	if err := checkSize("the head of a data stream", head, StreamSize); err != nil {
		return Stream{}, err
	}
	f := fields(head)
	return Stream{Lane: f.lane(), To: f.u32(), By: f.u32()}, nil
}
