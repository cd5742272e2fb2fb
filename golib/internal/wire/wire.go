// Package wire has the bytes that nodes exchange: what is written on a connection's control stream, and the heads of
// streams and frames that carry samples. It is pure: it appends to slices and parses slices. Who may say what and when
// is the business of package peer; docs/protocol.md has both.
//
// All numbers are little-endian and of fixed size. A parser never trusts a length that it has not checked, and wants
// exactly the bytes of its message: neither fewer nor more.
package wire

import (
	"encoding/binary"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// Version is that of everything in this package. Nodes of different versions refuse each other.
const Version = 1

// Protocol names this protocol in the TLS handshake (ALPN).
const Protocol = "redox/1"

// MaxNodes bounds the number of nodes that a HELLO may name.
const MaxNodes = 1 << 16

// Lane is one pass over an epoch, the same on all nodes: the Nth pass over this epoch that begins at From.
type Lane struct {
	Epoch, Nth uint64
	From       int64 // global position
}

const laneSize = 24

func (l Lane) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, l.Epoch)
	b = binary.LittleEndian.AppendUint64(b, l.Nth)
	return binary.LittleEndian.AppendUint64(b, uint64(l.From))
}

// fields takes fixed-size fields from the front of a body whose size was checked.
type fields []byte

func (f *fields) u16() uint16 {
	v := binary.LittleEndian.Uint16(*f)
	*f = (*f)[2:]
	return v
}

func (f *fields) u32() uint32 {
	v := binary.LittleEndian.Uint32(*f)
	*f = (*f)[4:]
	return v
}

func (f *fields) u64() uint64 {
	v := binary.LittleEndian.Uint64(*f)
	*f = (*f)[8:]
	return v
}

func (f *fields) hash() (h [32]byte) {
	copy(h[:], *f)
	*f = (*f)[len(h):]
	return h
}

func (f *fields) lane() Lane {
	return Lane{Epoch: f.u64(), Nth: f.u64(), From: int64(f.u64())}
}

func malformed(format string, args ...any) error {
	return fault.New(fault.Peer, "malformed message: "+format, args...)
}

func checkSize(what string, b []byte, want int) error {
	if len(b) != want {
		return malformed("%s has %d bytes, not %d", what, len(b), want)
	}
	return nil
}
