package wire

import (
	"crypto/sha256"
	"encoding/binary"
)

// Hello is the first message in both directions. The one who was dialed answers it only if it accepts the dialer:
// its HELLO, and nothing earlier, means that the connection may be used.
type Hello struct {
	Version     uint16
	Node        uint32   // of the sender
	Nodes       uint32   // how many there are
	Incarnation uint64   // of the sender; a restarted node has a higher one
	World       [32]byte // WorldHash
	Plan        [32]byte // hash of all that decides the order of samples
}

const helloSize = 2 + 4 + 4 + 8 + 32 + 32

// Append writes the message with its head.
func (h Hello) Append(b []byte) []byte {
	b = appendHead(b, KindHello)
	b = binary.LittleEndian.AppendUint16(b, h.Version)
	b = binary.LittleEndian.AppendUint32(b, h.Node)
	b = binary.LittleEndian.AppendUint32(b, h.Nodes)
	b = binary.LittleEndian.AppendUint64(b, h.Incarnation)
	b = append(b, h.World[:]...)
	return append(b, h.Plan[:]...)
}

// ParseHello parses a body.
func ParseHello(body []byte) (Hello, error) {
	if err := checkSize("HELLO", body, helloSize); err != nil {
		return Hello{}, err
	}
	f := fields(body)
	h := Hello{Version: f.u16(), Node: f.u32(), Nodes: f.u32(), Incarnation: f.u64(), World: f.hash(), Plan: f.hash()}
	// What another version means by the rest is not known; the receiver will refuse it by its number.
	if h.Version == Version && (h.Nodes > MaxNodes || h.Node >= h.Nodes) {
		return Hello{}, malformed("HELLO of node %d of %d", h.Node, h.Nodes)
	}
	return h, nil
}

// WorldHash is that of the number of nodes and the ranks of each.
func WorldHash(ranks []int) [32]byte {
	b := []byte("redox world\x00")
	b = binary.LittleEndian.AppendUint32(b, uint32(len(ranks)))
	for _, n := range ranks {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	return sha256.Sum256(b)
}
