package wire

import "encoding/binary"

// Abandon is said by a rank that leaves a lane, once to each rank of the other node: it takes no more samples, and sends
// rank To none from the ordinal Next on. When all ranks of a node have said it, nothing more comes from that node.
type Abandon struct {
	Lane Lane
	Rank uint32 // the one that leaves, of the sender's node
	To   uint32 // of the receiver's node
	Next uint64
}

const abandonSize = laneSize + 4 + 4 + 8

// Append writes the message with its head.
func (a Abandon) Append(b []byte) []byte {
	b = appendHead(b, KindAbandon)
	b = a.Lane.append(b)
	b = binary.LittleEndian.AppendUint32(b, a.Rank)
	b = binary.LittleEndian.AppendUint32(b, a.To)
	return binary.LittleEndian.AppendUint64(b, a.Next)
}

// ParseAbandon parses a body.
func ParseAbandon(body []byte) (Abandon, error) {
	if err := checkSize("ABANDON", body, abandonSize); err != nil {
		return Abandon{}, err
	}
	f := fields(body)
	return Abandon{Lane: f.lane(), Rank: f.u32(), To: f.u32(), Next: f.u64()}, nil
}
