package peer_test

import (
	"context"
	"crypto/tls"
	"hash/crc32"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/redox-loader/redox/golib/internal/exchange"
	"github.com/redox-loader/redox/golib/internal/peer"
	"github.com/redox-loader/redox/golib/internal/peer/peertest"
	"github.com/redox-loader/redox/golib/internal/wire"
)

// hostile is node 0 of three: it has a certificate as it should, and does what it likes.
type hostile struct {
	t         *testing.T
	conn      *quic.Conn
	control   *quic.Stream
	transport *quic.Transport
	socket    net.PacketConn
}

var hostileWorld = []int{1, 1, 1}

// dialHostile connects the hostile node with its victim and says HELLO.
func dialHostile(t *testing.T, a *authority, network *peertest.Network, victim *peer.Mesh, hello wire.Hello) *hostile {
	t.Helper()
	a.identity("node-0.redox", time.Unix(1<<33, 0))
	cert, err := tls.LoadX509KeyPair(a.path("node-0.redox.pem"), a.path("node-0.redox.key"))
	if err != nil {
		t.Fatal(err)
	}
	socket, err := network.Listen(peertest.Host(1) + ":0")
	if err != nil {
		t.Fatal(err)
	}
	h := &hostile{t: t, socket: socket, transport: &quic.Transport{Conn: socket}}
	target, _ := net.ResolveUDPAddr("udp", victim.Card().Address)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	h.conn, err = h.transport.Dial(ctx, target, &tls.Config{NextProtos: []string{wire.Protocol}, InsecureSkipVerify: true,
		Certificates: []tls.Certificate{cert}}, &quic.Config{KeepAlivePeriod: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if h.control, err = h.conn.OpenStreamSync(ctx); err != nil {
		t.Fatal(err)
	}
	h.say(hello.Append(nil))
	return h
}

func (h *hostile) close() {
	h.conn.CloseWithError(0, "")
	h.transport.Close()
	h.socket.Close()
}

// say writes to the control stream; that this fails at last is the point.
func (h *hostile) say(b []byte) error {
	_, err := h.control.Write(b)
	return err
}

// stream opens a data stream and writes to it.
func (h *hostile) stream(head wire.Stream, b ...[]byte) *quic.SendStream {
	s, err := h.conn.OpenUniStream()
	if err != nil {
		return nil
	}
	s.Write(head.Append(nil))
	for _, p := range b {
		s.Write(p)
	}
	return s
}

func frame(ordinal uint64, position int64, data string) []byte {
	b := []byte(data)
	return append(wire.Frame{Ordinal: ordinal, Position: position, Length: uint32(len(b)), CRC: crc32.Checksum(b, castagnoli)}.Append(nil), b...)
}

// attack is what a hostile peer does; the lane expects position 100+n of node n%2*2 for its ordinals n below 8.
type attack struct {
	name string
	do   func(h *hostile)
	word string // of the reason in the victim's log; "": it is not cut
}

var hostileLane = wire.Lane{Epoch: 1}
var hostileHead = wire.Stream{Lane: hostileLane, To: 1, By: 0}

var attacks = []attack{
	{"an over-long frame", func(h *hostile) {
		h.stream(hostileHead, wire.Frame{Position: 100, Length: 1001}.Append(nil))
	}, "where the largest has 1000"},
	{"a frame beyond credit", func(h *hostile) { h.stream(hostileHead, frame(8, 108, "x")) }, "beyond the credit"},
	{"a wrong position", func(h *hostile) { h.stream(hostileHead, frame(0, 102, "x")) }, "at position 102"},
	{"another's sample", func(h *hostile) { h.stream(hostileHead, frame(1, 101, "x")) }, "of node 2"},
	{"ordinals that fall", func(h *hostile) { h.stream(hostileHead, frame(2, 102, "x"), frame(0, 100, "x")) }, "after sample 2"},
	{"the same sample twice", func(h *hostile) { h.stream(hostileHead, frame(0, 100, "x"), frame(0, 100, "x")) }, "after sample 0"},
	{"a nonsense frame", func(h *hostile) { h.stream(hostileHead, wire.Frame{Length: 1, Prefix: 2}.Append(nil)) }, "malformed"},
	{"a lane that never was", func(h *hostile) { h.stream(wire.Stream{Lane: wire.Lane{Epoch: 9}, To: 1}) }, "never open"},
	{"another node's rank", func(h *hostile) { h.stream(wire.Stream{Lane: hostileLane, To: 2}) }, "to rank 2"},
	{"in another's name", func(h *hostile) { h.stream(wire.Stream{Lane: hostileLane, To: 1, By: 2}) }, "from rank 2"},
	{"two streams for one", func(h *hostile) { h.stream(hostileHead); h.stream(hostileHead) }, "two streams"},
	{"half a head", func(h *hostile) {
		s, _ := h.conn.OpenUniStream()
		s.Write([]byte{1, 2, 3})
		s.Close()
	}, "in the middle"},
	{"half a sample", func(h *hostile) { h.stream(hostileHead, frame(0, 100, "hello")[:39]).Close() }, "in the middle"},
	{"a second HELLO", func(h *hostile) { h.say(wire.Hello{Version: 1, Nodes: 3}.Append(nil)) }, "second HELLO"},
	{"nonsense", func(h *hostile) { h.say([]byte("GET / HTTP/1.1\r\n\r\n")) }, "unknown kind"},
	{"no control stream", func(h *hostile) { h.control.Close() }, "closed its control stream"},
	{"credit for another", func(h *hostile) { h.say(wire.Credit{Rank: 2}.Append(nil)) }, "not of node 0"},
	{"credit that falls", func(h *hostile) {
		h.say(wire.Credit{Upto: 2}.Append(nil))
		h.say(wire.Credit{Upto: 1}.Append(nil))
	}, "after 0 up to 2"},
	{"endless lanes", func(h *hostile) {
		for epoch := range uint64(100) {
			h.say(wire.Credit{Lane: wire.Lane{Epoch: 100 + epoch}}.Append(nil))
		}
	}, "more than 64 lanes"},
	{"drops for another", func(h *hostile) { h.say(wire.Dropped{Rank: 2, To: 1}.Append(nil)) }, "not of this node"},
	{"leaves for another", func(h *hostile) { h.say(wire.Abandon{Rank: 2, To: 1}.Append(nil)) }, "rank 2 leaves"},
	{"a flood of messages", func(h *hostile) {
		b := wire.Dropped{Lane: hostileLane, Rank: 1, From: 50, To: 60}.Append(nil)
		for range 10 {
			b = append(b, b...)
		}
		for h.say(b) == nil {
		}
	}, "control messages a second"},
	{"endless abandoning", func(h *hostile) {
		for epoch := range uint64(20_000) {
			h.say(wire.Abandon{Lane: wire.Lane{Epoch: epoch + 100}, To: 1}.Append(nil))
		}
	}, ""},
	{"a flood of streams", func(h *hostile) {
		for i := range 1000 {
			if s, err := h.conn.OpenUniStream(); err == nil {
				s.Write([]byte{byte(i)})
			}
		}
	}, ""},
	{"a wrong checksum", func(h *hostile) {
		b := frame(0, 100, "hello")
		b[len(b)-1]++
		h.stream(hostileHead, b)
	}, ""},
	{"useless samples without end", func(h *hostile) {
		for range 2000 {
			h.stream(hostileHead, frame(0, 100, "x")).Close()
			time.Sleep(time.Millisecond)
		}
	}, ""},
	{"half a sample and then nothing", func(h *hostile) { h.stream(hostileHead, frame(0, 100, "hello")[:39]) }, ""},
	{"half a sample that it drops, and then the rest", func(h *hostile) {
		b := frame(0, 100, "hello")
		s := h.stream(hostileHead, b[:38])
		time.Sleep(100 * time.Millisecond)
		h.say(wire.Dropped{Lane: hostileLane, Rank: 1, From: 0, To: 1}.Append(nil))
		time.Sleep(100 * time.Millisecond)
		s.Write(b[38:])
	}, ""},
	{"samples dropped without end", func(h *hostile) {
		h.say(wire.Dropped{Lane: hostileLane, Rank: 1, From: 0, To: 1<<64 - 1}.Append(nil))
	}, ""},
}

// A peer that has come past the handshake can cost its own samples, and nothing else: no wrong sample, no memory, no
// other connection.
func TestHostilePeers(t *testing.T) {
	a := newAuthority(t)
	for _, attack := range attacks {
		t.Run(attack.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testAttack(t, a, attack) })
		})
	}
}

func testAttack(t *testing.T, a *authority, attack attack) {
	network := peertest.NewNetwork(1, peertest.Link{Delay: time.Millisecond})
	var meshes [3]*peer.Mesh
	var log logbook
	for node := 1; node < 3; node++ {
		m, err := peer.Listen(peer.Config{Node: node, Nodes: 3, Ranks: hostileWorld, Socket: network.Listen,
			Listen: net.JoinHostPort(peertest.Host(node+1), "700"), Log: log.add, Memory: 4 << 20,
			Identity: a.identity([]string{"", "node-1.redox", "node-2.redox"}[node], time.Unix(1<<33, 0))})
		if err != nil {
			t.Fatal(err)
		}
		meshes[node] = m
	}
	cards := peer.Addresses([]string{"10.7.7.7:7", peertest.Host(2) + ":700", peertest.Host(3) + ":700"})
	for _, m := range meshes[1:] {
		if err := m.Meet(cards); err != nil {
			t.Fatal(err)
		}
	}
	h := dialHostile(t, a, network, meshes[1], wire.Hello{Version: wire.Version, Nodes: 3, World: wire.WorldHash(hostileWorld)})
	if _, err := h.control.Read(make([]byte, wire.HeadSize)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)

	var heap runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&heap)
	before := heap.HeapAlloc
	notify := func() {}
	config := exchange.Config{ID: exchange.ID{Epoch: 1}, Rank: 1, Ranks: hostileWorld, Credit: 8, Largest: 1000, Notify: notify}
	victim, err := meshes[1].Open(config)
	if err != nil {
		t.Fatal(err)
	}
	config.Rank = 2
	other, err := meshes[2].Open(config)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 8 {
		victim.Expect(int64(100+n), n%2*2)
	}
	for n := uint64(1); n < 8; n += 2 {
		data := []byte{byte(n)}
		other.Send(exchange.Outgoing{To: 1, Ordinal: n, Position: int64(100 + n), Done: func(bool) {},
			Sample: exchange.Sample{Data: data, CRC: crc32.Checksum(data, castagnoli)}})
	}
	attack.do(h)
	time.Sleep(3 * time.Second)
	synctest.Wait()

	for n := range uint64(8) {
		s, status := victim.Look(n)
		if n%2 == 1 && (status != exchange.Here || s.Data[0] != byte(n)) {
			t.Errorf("sample %d of the honest peer: %v", n, status)
		}
		if n%2 == 0 && status == exchange.Here && (len(s.Data) == 0 || s.CRC != crc32.Checksum(s.Data, castagnoli)) {
			t.Errorf("sample %d of the hostile peer is wrong", n)
		}
		if attack.word != "" && n%2 == 0 && status == exchange.Coming {
			t.Errorf("sample %d of the peer that was cut is still coming", n)
		}
	}
	if _, status := victim.Look(0); strings.Contains(attack.name, "it drops") && status != exchange.Lost {
		t.Errorf("what was lost is in status %d", status)
	}
	cut := h.conn.Context().Err() != nil
	lines := strings.Join(log.all(), "\n")
	if cut != (attack.word != "") || !strings.Contains(lines, attack.word) {
		t.Errorf("cut: %v, log:\n%s", cut, lines)
	}
	if s := meshes[1].Stats()[2]; !s.Connected || s.Connects != 1 {
		t.Errorf("the honest peer: %+v", s)
	}
	runtime.GC()
	runtime.ReadMemStats(&heap)
	if grown := int64(heap.HeapAlloc) - int64(before); grown > 8<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	if cut { // it is not let in again for a while
		again := dialHostile(t, a, network, meshes[1], wire.Hello{Version: wire.Version, Nodes: 3, World: wire.WorldHash(hostileWorld)})
		if _, err := again.control.Read(make([]byte, 1)); err == nil {
			t.Error("it was let in again")
		}
		again.close()
	}
	h.close()
	victim.Close()
	other.Close()
	meshes[1].Close()
	meshes[2].Close()
	time.Sleep(time.Minute)
}

// Whoever has a certificate is not yet any node.
func TestWrongHellos(t *testing.T) {
	a := newAuthority(t)
	good := wire.Hello{Version: wire.Version, Node: 0, Nodes: 3, World: wire.WorldHash(hostileWorld), Incarnation: 7}
	for word, change := range map[string]func(*wire.Hello){
		"speaks version 2":       func(h *wire.Hello) { h.Version = 2 },
		"says that it is node 2": func(h *wire.Hello) { h.Node = 2 },
		"counts 4 nodes":         func(h *wire.Hello) { h.Nodes = 4 },
		"other numbers of ranks": func(h *wire.Hello) { h.World[0]++ },
		"has another plan":       func(h *wire.Hello) { h.Plan[0]++ },
		"an earlier start":       func(h *wire.Hello) { h.Incarnation = 6 },
	} {
		t.Run(word, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := peertest.NewNetwork(1, peertest.Link{Delay: time.Millisecond})
				var log logbook
				m, err := peer.Listen(peer.Config{Node: 1, Nodes: 3, Ranks: hostileWorld, Listen: peertest.Host(2) + ":700",
					Socket: network.Listen, Log: log.add, Identity: a.identity("node-1.redox", time.Unix(1<<33, 0))})
				if err != nil {
					t.Fatal(err)
				}
				if err := m.Meet([]peer.Card{{Node: 0, Address: "10.7.7.7:7", Incarnation: 7}}); err != nil {
					t.Fatal(err)
				}
				hello := good
				change(&hello)
				h := dialHostile(t, a, network, m, hello)
				if _, err := io.ReadAll(h.control); err == nil {
					t.Error("it was let in")
				}
				synctest.Wait()
				if s := m.Stats()[0]; s.Connects != 0 || s.Refused != 1 || !strings.Contains(strings.Join(log.all(), ""), word) {
					t.Errorf("%+v, %q", s, log.all())
				}
				h.close()
				m.Close()
				time.Sleep(time.Minute)
			})
		})
	}
}
