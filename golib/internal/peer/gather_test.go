package peer

import (
	"bytes"
	"encoding/binary"
	"net"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// segmented is the control message with which a sender has the kernel cut a buffer into packets.
func segmented(size int) []byte {
	b := make([]byte, unix.CmsgSpace(2))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	h.Level, h.Type = unix.IPPROTO_UDP, unix.UDP_SEGMENT
	h.SetLen(unix.CmsgLen(2))
	binary.NativeEndian.PutUint16(b[unix.CmsgLen(0):], uint16(size))
	return b
}

// Joined packets come out as they went in, also when there are more than fit into one call.
func TestGatheredPacketsAreTakenApart(t *testing.T) {
	in, err := openSocket("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	s := in.(*socket)
	out, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	all := make([]byte, 12*1200+77)
	for i := range all {
		all[i] = byte(i * 31 >> 3)
	}
	if _, _, err := out.WriteMsgUDP(all, segmented(1200), s.LocalAddr().(*net.UDPAddr)); err != nil {
		t.Skipf("the kernel does not cut packets: %v", err)
	}
	if _, err := out.WriteTo([]byte("alone"), s.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	var got [][]byte
	calls := 0
	for len(got) < 14 {
		messages := make([]ipv4.Message, 8)
		for i := range messages {
			messages[i].Buffers = [][]byte{make([]byte, 1452)}
			messages[i].OOB = make([]byte, 128)
		}
		s.SetReadDeadline(time.Now().Add(10 * time.Second))
		n, err := s.ReadBatch(messages, 0)
		if err != nil {
			t.Fatal(err)
		}
		calls++
		for _, m := range messages[:n] {
			if m.Addr.String() != out.LocalAddr().String() {
				t.Errorf("from %v", m.Addr)
			}
			got = append(got, m.Buffers[0][:m.N])
		}
	}
	for i, b := range got[:12] {
		if !bytes.Equal(b, all[1200*i:][:1200]) {
			t.Errorf("packet %d has %d other bytes", i, len(b))
		}
	}
	if !bytes.Equal(got[12], all[12*1200:]) || string(got[13]) != "alone" {
		t.Errorf("the end: %d bytes, %q", len(got[12]), got[13])
	}
	t.Logf("%d calls", calls)
}
