package peer

import (
	"crypto/hmac"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// Card is what a node tells the others before they connect, by any way that reaches all: as JSON, through a store.
type Card struct {
	Node        int         `json:"node"`
	Address     string      `json:"address"` // host:port
	Fingerprint Fingerprint `json:"fingerprint,omitzero"`
	Incarnation uint64      `json:"incarnation"` // of two cards of one node the higher counts
	Seal        []byte      `json:"seal,omitempty"`
}

// MarshalText writes a fingerprint in hexadecimal.
func (f Fingerprint) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(f[:])), nil }

// UnmarshalText reads what MarshalText writes.
func (f *Fingerprint) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil || len(b) != len(f) {
		return fmt.Errorf("a fingerprint is %d bytes in hexadecimal, not %q", len(f), text)
	}
	copy(f[:], b)
	return nil
}

// sealed is what a seal covers.
func (c Card) sealed() []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(c.Node))
	b = binary.LittleEndian.AppendUint64(b, c.Incarnation)
	b = append(b, c.Fingerprint[:]...)
	return append(b, c.Address...)
}

// checkSeal accepts a card without a fingerprint and without a seal as what it is: an address.
func checkSeal(id Identity, c Card) error {
	want := id.seal(c.sealed())
	if want == nil || c.Fingerprint == (Fingerprint{}) && len(c.Seal) == 0 || hmac.Equal(want, c.Seal) {
		return nil
	}
	return fault.New(fault.Peer, "the card of node %d (%s) was not made with our token", c.Node, c.Address)
}
