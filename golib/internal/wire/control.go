package wire

import "encoding/binary"

// Kind is the first byte of a control message.
type Kind uint8

// The control messages.
const (
	KindHello Kind = 1 + iota
	KindCredit
	KindDropped
	KindAbandon
	KindBye
)

// bodySizes has the size of each kind's body; what is not here is no message.
var bodySizes = map[Kind]int{
	KindHello: helloSize, KindCredit: creditSize, KindDropped: droppedSize, KindAbandon: abandonSize, KindBye: byeSize,
}

// HeadSize is what precedes the body of each control message: kind, a zero byte, the body's size (u16).
const HeadSize = 4

// MaxBody is the size of the largest body, so that a reader can have its memory ready.
const MaxBody = helloSize

func appendHead(b []byte, kind Kind) []byte {
	b = append(b, byte(kind), 0)
	return binary.LittleEndian.AppendUint16(b, uint16(bodySizes[kind]))
}

// ParseHead says which control message follows and how many bytes its body has.
func ParseHead(b []byte) (Kind, int, error) {
	if err := checkSize("the head of a control message", b, HeadSize); err != nil {
		return 0, 0, err
	}
	kind, size := Kind(b[0]), int(binary.LittleEndian.Uint16(b[2:]))
	want, known := bodySizes[kind]
	if !known || b[1] != 0 {
		return 0, 0, malformed("unknown kind %d.%d", b[0], b[1])
	}
	if size != want {
		return 0, 0, malformed("a message of kind %d has %d bytes, not %d", kind, size, want)
	}
	return kind, size, nil
}
