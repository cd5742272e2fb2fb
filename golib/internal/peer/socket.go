package peer

import (
	"net"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// socketBuffer is the size that is asked of the kernel for each direction; it gives what its administrator allows.
const socketBuffer = 7 << 20

// socket is a UDP socket as quic-go likes it.
type socket struct {
	*net.UDPConn
	asked atomic.Int32
}

func openSocket(listen string) (net.PacketConn, error) {
	address, err := net.ResolveUDPAddr("udp", listen)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the address to listen on")
	}
	c, err := net.ListenUDP("udp", address)
	if err != nil {
		return nil, fault.Wrap(fault.IO, err, "listen on %s", listen)
	}
	s := &socket{UDPConn: c}
	s.growBuffers()
	return s, nil
}

// growBuffers asks for large buffers, also beyond the administrator's bound where we may. Errors do not matter: with
// smaller ones a burst is lost and sent again.
func (s *socket) growBuffers() {
	raw, err := s.UDPConn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		for _, option := range []int{unix.SO_RCVBUF, unix.SO_SNDBUF, unix.SO_RCVBUFFORCE, unix.SO_SNDBUFFORCE} {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, option, socketBuffer)
		}
	})
}

// SyscallConn fails twice, on purpose. quic-go asks twice in order to look at the sizes of the buffers, and where they are
// smaller than it would like, it writes a line to the standard error of the trainer, whose it is. When it can't look, it
// only sets them. TestListenIsSilent would notice if another version did so in another order.
func (s *socket) SyscallConn() (syscall.RawConn, error) {
	if s.asked.Add(1) <= 2 {
		return nil, syscall.ENOTSUP
	}
	return s.UDPConn.SyscallConn()
}

// SetReadBuffer does nothing: growBuffers may have got more than it would get.
func (s *socket) SetReadBuffer(int) error { return nil }

// SetWriteBuffer does nothing either.
func (s *socket) SetWriteBuffer(int) error { return nil }
