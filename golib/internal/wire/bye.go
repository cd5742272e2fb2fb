package wire

import "encoding/binary"

// Bye is the last message of a node that goes. Who hears it reads the data streams to their ends, of which Streams were
// opened on this connection, and closes the connection: so nothing that was sent is lost.
type Bye struct {
	Streams uint64
}

const byeSize = 8

// Append writes the message with its head.
func (y Bye) Append(b []byte) []byte {
	return binary.LittleEndian.AppendUint64(appendHead(b, KindBye), y.Streams)
}

// ParseBye parses a body.
func ParseBye(body []byte) (Bye, error) {
	if err := checkSize("BYE", body, byeSize); err != nil {
		return Bye{}, err
	}
	f := fields(body)
	return Bye{Streams: f.u64()}, nil
}
