package peer

import (
	"encoding/binary"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// The kernel can hand over packets of one sender, that came one after the other, as one (UDP_GRO): one call for up to 64
// of them, and one way through its network stack. quic-go does not ask for that, but it reads from whatever has
// ReadBatch; so the packets are taken apart again here. Where the kernel does not join packets, this is what quic-go does
// itself: up to 8 packets in a call.
const (
	gathered     = 8       // messages in a call
	gatheredSize = 1 << 16 // of joined packets
	controlSize  = 128     // of what the kernel says about a message
)

// gatherer takes joined packets apart. One goroutine of quic-go uses it.
type gatherer struct {
	conn     *ipv4.PacketConn
	messages []ipv4.Message
	have     int // messages that were read
	at       int // the one that is taken apart
	offset   int // in it
}

// newGatherer asks the kernel to join packets; that it can't matters little.
func newGatherer(s *socket) *gatherer {
	raw, err := s.UDPConn.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_GRO, 1) })
	}
	g := &gatherer{conn: ipv4.NewPacketConn(s.UDPConn), messages: make([]ipv4.Message, gathered)}
	for i := range g.messages {
		g.messages[i].Buffers = [][]byte{make([]byte, gatheredSize)}
		g.messages[i].OOB = make([]byte, controlSize)
	}
	return g
}

// ReadBatch reads packets into messages, at least one.
func (s *socket) ReadBatch(into []ipv4.Message, flags int) (int, error) {
	g := s.gatherer
	if g.at == g.have {
		for i := range g.messages {
			g.messages[i].OOB = g.messages[i].OOB[:controlSize]
		}
		n, err := g.conn.ReadBatch(g.messages, flags)
		if err != nil || n == 0 {
			return 0, err
		}
		g.have, g.at, g.offset = n, 0, 0
	}
	n := 0
	for n < len(into) && g.at < g.have {
		g.next(&into[n])
		n++
	}
	return n, nil
}

// next takes one packet.
func (g *gatherer) next(into *ipv4.Message) {
	m := &g.messages[g.at]
	rest := m.Buffers[0][g.offset:m.N]
	size := min(segmentSize(m.OOB[:m.NN], len(rest)), len(rest))
	into.N = copy(into.Buffers[0], rest[:size])
	into.NN = copy(into.OOB[:cap(into.OOB)], m.OOB[:m.NN])
	into.Addr, into.Flags = m.Addr, m.Flags
	g.offset += size
	if g.offset >= m.N {
		g.at, g.offset = g.at+1, 0
	}
}

// segmentSize is how large each of the joined packets is (but for the last one), or whole if nothing was joined.
func segmentSize(control []byte, whole int) int {
	for len(control) > 0 {
		head, body, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			return whole
		}
		if head.Level == unix.IPPROTO_UDP && head.Type == unix.UDP_GRO && len(body) >= 4 {
			if size := int(int32(binary.NativeEndian.Uint32(body))); size > 0 {
				return size
			}
			return whole
		}
		control = rest
	}
	return whole
}
