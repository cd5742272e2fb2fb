package peer

import "github.com/redox-loader/redox/golib/internal/exchange"

// OpenSocket is for tests that compare with plain QUIC over the same socket.
var OpenSocket = openSocket

// RingBytes is the memory that a lane has mapped for incoming samples.
func RingBytes(l exchange.Lane) int { return len(l.(*lane).ring.mem) }
