package wire

import "encoding/binary"

// Credit is said by a receiving rank to each owner: it takes the samples with ordinals From ≤ n < Upto, and has no use
// for lower ones. Absolute, so that it can be repeated; neither number ever falls on one connection. It is credit,
// progress and, after a connection was lost, the point from which to go on.
type Credit struct {
	Lane Lane
	Rank uint32 // the receiving one, of the sender's node
	From uint64
	Upto uint64
}

const creditSize = laneSize + 4 + 8 + 8

// Append writes the message with its head.
func (c Credit) Append(b []byte) []byte {
	b = appendHead(b, KindCredit)
	b = c.Lane.append(b)
	b = binary.LittleEndian.AppendUint32(b, c.Rank)
	b = binary.LittleEndian.AppendUint64(b, c.From)
	return binary.LittleEndian.AppendUint64(b, c.Upto)
}

// ParseCredit parses a body.
func ParseCredit(body []byte) (Credit, error) {
	if err := checkSize("CREDIT", body, creditSize); err != nil {
		return Credit{}, err
	}
	f := fields(body)
	c := Credit{Lane: f.lane(), Rank: f.u32(), From: f.u64(), Upto: f.u64()}
	if c.From > c.Upto {
		return Credit{}, malformed("CREDIT from %d up to %d", c.From, c.Upto)
	}
	return c, nil
}
