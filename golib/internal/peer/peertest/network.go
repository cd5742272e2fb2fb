// Package peertest is a network in memory for whole clusters in virtual time (testing/synctest): packets are lost, late,
// slow and out of order as a seed has it, and cables can be cut.
package peertest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"
)

// Link is how packets travel from one address to another.
type Link struct {
	Delay  time.Duration
	Jitter time.Duration // at most so much more, at random: packets overtake each other
	Loss   float64       // share of the packets that are lost
	Rate   int64         // bytes a second, 0: no limit
	Queue  int64         // bytes that may wait where there is a rate, 0: 1 MB
	Cut    bool
}

const defaultQueue = 1 << 20

// Network connects sockets. Safe for concurrent use.
type Network struct {
	mu       sync.Mutex
	random   *rand.Rand
	standard Link
	links    map[[2]string]*link
	sockets  map[string]*Socket
	ports    int
	held     map[string][]packet // of frozen hosts
	packets  int64
	recorder func(to *net.UDPAddr, p packet)
}

type link struct {
	Link
	free time.Time // when the link has sent what waits
}

type packet struct {
	from *net.UDPAddr
	data []byte
}

// NewNetwork makes a network all of whose links are alike until Set makes them different.
func NewNetwork(seed uint64, standard Link) *Network {
	return &Network{random: rand.New(rand.NewPCG(seed, 0)), standard: standard, links: map[[2]string]*link{},
		sockets: map[string]*Socket{}, held: map[string][]packet{}}
}

// Host is the address of the node with a number.
func Host(node int) string { return fmt.Sprintf("10.1.%d.%d", node>>8, node&255) }

// Set changes the link from one host to another.
func (n *Network) Set(from, to string, l Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.link(from, to).Link = l
}

// Cut cuts a host off from all others, or heals that.
func (n *Network) Cut(host string, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.sockets {
		other := s.address.IP.String()
		n.link(host, other).Cut = cut
		n.link(other, host).Cut = cut
	}
}

// Freeze keeps what is sent to a host until it is thawed, when it all comes at once; and drops what it sends. That is how
// a process looks that is stopped.
func (n *Network) Freeze(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.held[host] == nil {
		n.held[host] = []packet{}
	}
}

// Thaw ends Freeze.
func (n *Network) Thaw(host string) {
	n.mu.Lock()
	held := n.held[host]
	delete(n.held, host)
	sockets := n.at(host)
	n.mu.Unlock()
	for _, p := range held {
		for _, s := range sockets {
			s.receive(p)
		}
	}
}

func (n *Network) at(host string) (all []*Socket) {
	for _, s := range n.sockets {
		if s.address.IP.String() == host {
			all = append(all, s)
		}
	}
	return all
}

// Packets is how many packets were sent.
func (n *Network) Packets() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.packets
}

// link is the one between two hosts. mu is held.
func (n *Network) link(from, to string) *link {
	key := [2]string{from, to}
	l := n.links[key]
	if l == nil {
		l = &link{Link: n.standard}
		n.links[key] = l
	}
	return l
}

// send carries a packet as its link has it.
func (n *Network) send(from *net.UDPAddr, to net.Addr, data []byte) {
	target, is := to.(*net.UDPAddr)
	if !is {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.packets++
	l := n.link(from.IP.String(), target.IP.String())
	if l.Cut || n.held[from.IP.String()] != nil || l.Loss > 0 && n.random.Float64() < l.Loss {
		return
	}
	now := time.Now()
	wait := l.Delay
	if l.Rate > 0 {
		queue := l.Queue
		if queue == 0 {
			queue = defaultQueue
		}
		start := l.free
		if start.Before(now) {
			start = now
		}
		if start.Sub(now) > time.Duration(float64(queue)/float64(l.Rate)*1e9) {
			return
		}
		l.free = start.Add(time.Duration(float64(len(data)) / float64(l.Rate) * 1e9))
		wait += l.free.Sub(now)
	}
	if l.Jitter > 0 {
		wait += time.Duration(n.random.Int64N(int64(l.Jitter)))
	}
	p := packet{from, append([]byte(nil), data...)}
	if wait <= 0 {
		n.deliver(target, p)
		return
	}
	time.AfterFunc(wait, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.deliver(target, p)
	})
}

func (n *Network) deliver(to *net.UDPAddr, p packet) {
	host := to.IP.String()
	if n.held[host] != nil {
		n.held[host] = append(n.held[host], p)
		return
	}
	if n.recorder != nil {
		n.recorder(to, p)
	}
	if s := n.sockets[to.String()]; s != nil {
		s.receive(p)
	}
}

// Listen opens a socket; port 0 is a free one. Its signature is that of peer.Config.Socket.
func (n *Network) Listen(address string) (net.PacketConn, error) {
	a, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if a.Port == 0 {
		n.ports++
		a.Port = 40000 + n.ports
	}
	if n.sockets[a.String()] != nil {
		return nil, fmt.Errorf("%v is in use", a)
	}
	s := &Socket{network: n, address: a, queue: make(chan packet, socketQueue), closed: make(chan struct{}),
		late: make(chan struct{}, 1)}
	n.sockets[a.String()] = s
	return s, nil
}

// socketQueue is how many packets wait for a reader before they are dropped.
const socketQueue = 4096

// Socket is a net.PacketConn of a Network.
type Socket struct {
	network *Network
	address *net.UDPAddr
	queue   chan packet
	late    chan struct{} // the deadline was changed

	mu       sync.Mutex
	once     sync.Once
	closed   chan struct{}
	deadline time.Time
}

func (s *Socket) receive(p packet) {
	select {
	case s.queue <- p:
	default:
	}
}

// ReadFrom waits for a packet.
func (s *Socket) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		s.mu.Lock()
		deadline := s.deadline
		s.mu.Unlock()
		var expired <-chan time.Time
		if !deadline.IsZero() {
			wait := time.Until(deadline)
			if wait <= 0 {
				return 0, nil, os.ErrDeadlineExceeded
			}
			timer := time.NewTimer(wait)
			defer timer.Stop()
			expired = timer.C
		}
		select {
		case p := <-s.queue:
			return copy(b, p.data), p.from, nil
		case <-s.closed:
			return 0, nil, net.ErrClosed
		case <-expired:
			return 0, nil, os.ErrDeadlineExceeded
		case <-s.late:
		}
	}
}

// WriteTo sends a packet.
func (s *Socket) WriteTo(b []byte, to net.Addr) (int, error) {
	select {
	case <-s.closed:
		return 0, net.ErrClosed
	default:
	}
	s.network.send(s.address, to, b)
	return len(b), nil
}

// Close closes the socket; its address is free again.
func (s *Socket) Close() error {
	s.once.Do(func() {
		close(s.closed)
		s.network.mu.Lock()
		defer s.network.mu.Unlock()
		if s.network.sockets[s.address.String()] == s {
			delete(s.network.sockets, s.address.String())
		}
	})
	return nil
}

// LocalAddr is the socket's address.
func (s *Socket) LocalAddr() net.Addr { return s.address }

// SetReadDeadline ends the waits of readers at a time.
func (s *Socket) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	s.deadline = t
	s.mu.Unlock()
	select {
	case s.late <- struct{}{}:
	default:
	}
	return nil
}

// SetWriteDeadline does nothing: no write waits.
func (s *Socket) SetWriteDeadline(time.Time) error { return nil }

// SetDeadline is SetReadDeadline.
func (s *Socket) SetDeadline(t time.Time) error { return s.SetReadDeadline(t) }

// SetReadBuffer keeps quic-go from complaining.
func (s *Socket) SetReadBuffer(int) error { return nil }

// SetWriteBuffer keeps quic-go from complaining.
func (s *Socket) SetWriteBuffer(int) error { return nil }

// Sent is a packet that was recorded.
type Sent struct {
	to *net.UDPAddr
	packet
}

// Record notes from now on what is delivered to a host; the function returns it.
func (n *Network) Record(host string) func() []Sent {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []Sent
	n.recorder = func(to *net.UDPAddr, p packet) {
		if to.IP.String() == host {
			all = append(all, Sent{to, p})
		}
	}
	return func() []Sent {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.recorder = nil
		return all
	}
}

// Replay delivers a recorded packet once more.
func (n *Network) Replay(s Sent) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.deliver(s.to, s.packet)
}
