package wire

import "encoding/binary"

// Dropped is said by an owner: of its samples for this rank, those with ordinals From ≤ n < To will not come. Samples of
// other owners between them are not meant.
type Dropped struct {
	Lane Lane
	Rank uint32 // the receiving one, of the receiver's node
	From uint64
	To   uint64
}

const droppedSize = laneSize + 4 + 8 + 8

// Append writes the message with its head.
func (d Dropped) Append(b []byte) []byte {
	b = appendHead(b, KindDropped)
	b = d.Lane.append(b)
	b = binary.LittleEndian.AppendUint32(b, d.Rank)
	b = binary.LittleEndian.AppendUint64(b, d.From)
	return binary.LittleEndian.AppendUint64(b, d.To)
}

// ParseDropped parses a body.
func ParseDropped(body []byte) (Dropped, error) {
	if err := checkSize("DROPPED", body, droppedSize); err != nil {
		return Dropped{}, err
	}
	f := fields(body)
	d := Dropped{Lane: f.lane(), Rank: f.u32(), From: f.u64(), To: f.u64()}
	if d.From >= d.To {
		return Dropped{}, malformed("DROPPED from %d to %d", d.From, d.To)
	}
	return d, nil
}
