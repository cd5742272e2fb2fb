package peer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/redox-loader/redox/golib/internal/exchange"
	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/wire"
)

// Mesh is this node's connections to all others. Safe for concurrent use.
type Mesh struct {
	config      Config
	identity    Identity
	certificate tls.Certificate
	card        Card
	conn        net.PacketConn
	transport   *quic.Transport
	listener    *quic.Listener
	ctx         context.Context // ends when Close begins to take things down
	cancel      context.CancelFunc
	work        sync.WaitGroup // every goroutine but those of quic-go
	guard       guard
	refused     atomic.Int64 // connections, whoever tried
	// open is the lanes that are open, replaced as a whole, so that pushers look at it without the lock.
	open atomic.Pointer[[]*lane]

	mu      sync.Mutex
	peers   []*peer // by node; this node's has no session ever
	lanes   map[laneRank]*lane
	left    []laneRank // lanes that were closed not long ago, the oldest first
	changed chan struct{}
	met     bool // the cards of all nodes are known, or not needed
	closing bool
}

var _ exchange.Exchange = (*Mesh)(nil)

// laneRank names a lane of one rank.
type laneRank struct {
	id   exchange.ID
	rank int
}

// peer is another node, connected or not. What is not atomic is guarded by Mesh.mu.
type peer struct {
	node     int
	card     Card
	meet     chan struct{} // tells the dialer that the card has changed
	session  *session
	refusal  error     // why this side can't be connected with it, for Await
	trouble  error     // why the latest attempt to connect failed
	strange  time.Time // since when its key does not fit
	barred   time.Time // until when it is refused
	newest   uint64    // incarnation of its latest HELLO
	counters counters
	told     map[string]struct{} // reasons of refusals that were logged
}

type counters struct {
	bytesIn, bytesOut, samplesIn, samplesOut, useless, refused, dropped, connects atomic.Int64
}

// Listen opens the socket and begins to answer; Meet tells it of the others.
func Listen(config Config) (*Mesh, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	m := &Mesh{config: config, identity: config.Identity, lanes: map[laneRank]*lane{}, changed: make(chan struct{})}
	if m.identity == nil {
		m.identity = Pinned()
	}
	if m.config.Incarnation == 0 {
		m.config.Incarnation = uint64(time.Now().UnixMicro())
	}
	if m.config.Log == nil {
		m.config.Log = func(string, string) {}
	}
	for node := range config.Nodes {
		m.peers = append(m.peers, &peer{node: node, meet: make(chan struct{}, 1), told: map[string]struct{}{}})
	}
	m.open.Store(&[]*lane{})
	var err error
	if m.certificate, err = m.identity.certificate(config.Node); err != nil {
		return nil, fault.Wrap(fault.Internal, err, "make a certificate")
	}
	leaf, err := x509.ParseCertificate(m.certificate.Certificate[0])
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "this node's certificate")
	}
	open := config.Socket
	if open == nil {
		open = openSocket
	}
	if m.conn, err = open(config.Listen); err != nil {
		return nil, err
	}
	m.card = Card{Node: config.Node, Address: m.address(), Fingerprint: fingerprintOf(leaf), Incarnation: m.config.Incarnation}
	m.card.Seal = m.identity.seal(m.card.sealed())
	if err := m.serve(); err != nil {
		m.conn.Close()
		return nil, err
	}
	return m, nil
}

// address is where others reach the socket: the host as it was given, and the port that the system chose.
func (m *Mesh) address() string {
	host, port, _ := net.SplitHostPort(m.config.Listen) // was checked
	if _, real, err := net.SplitHostPort(m.conn.LocalAddr().String()); err == nil {
		port = real
	}
	return net.JoinHostPort(host, port)
}

// serve starts what answers and what dials.
func (m *Mesh) serve() error {
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.transport = &quic.Transport{
		Conn:                m.conn,
		StatelessResetKey:   m.resetKey(),
		VerifySourceAddress: m.guard.suspicious,
		ConnContext:         m.attempted,
	}
	config := m.quicConfig()
	config.GetConfigForClient = m.admit
	listener, err := m.transport.Listen(m.tlsConfig(m.verifyClient), config)
	if err != nil {
		m.cancel()
		m.transport.Close()
		return fault.Wrap(fault.IO, err, "listen on %s", m.config.Listen)
	}
	m.listener = listener
	m.work.Go(m.accept)
	for node := m.config.Node + 1; node < m.config.Nodes; node++ {
		m.work.Go(func() { m.dial(m.peers[node]) })
	}
	return nil
}

// Card is what the others must know of this node.
func (m *Mesh) Card() Card { return m.card }

// Nodes is how many nodes there are.
func (m *Mesh) Nodes() int { return m.config.Nodes }

// Node is this one.
func (m *Mesh) Node() int { return m.config.Node }

// Refused is how many connections were refused, also those of strangers, which Stats can't count for a node.
func (m *Mesh) Refused() int64 { return m.refused.Load() }

// Stats are the counters for each node.
func (m *Mesh) Stats() []exchange.Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]exchange.Stats, len(m.peers))
	for i, p := range m.peers {
		c := &p.counters
		all[i] = exchange.Stats{
			BytesIn: c.bytesIn.Load(), BytesOut: c.bytesOut.Load(),
			SamplesIn: c.samplesIn.Load(), SamplesOut: c.samplesOut.Load(),
			Useless: c.useless.Load(), Refused: c.refused.Load(), Dropped: c.dropped.Load(),
			Connects: c.connects.Load(), Connected: p.session != nil,
		}
	}
	return all
}

// hello is what this node says first.
func (m *Mesh) hello() wire.Hello {
	return wire.Hello{
		Version: wire.Version, Node: uint32(m.config.Node), Nodes: uint32(m.config.Nodes),
		Incarnation: m.config.Incarnation, World: wire.WorldHash(m.config.Ranks), Plan: m.config.Hash,
	}
}

// change wakes those who wait for something of the mesh to change. Mesh.mu is held.
func (m *Mesh) change() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// sessions are those that live.
func (m *Mesh) sessions() []*session {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []*session
	for _, p := range m.peers {
		if p.session != nil {
			all = append(all, p.session)
		}
	}
	return all
}

// Close sends what is queued and credited, for a second at most, ends all lanes and connections, and waits until
// everything has ended.
func (m *Mesh) Close() {
	m.mu.Lock()
	first := !m.closing
	m.closing = true
	m.change()
	m.mu.Unlock()
	if first {
		m.flush()
		for _, l := range *m.open.Load() {
			l.Close()
		}
		m.goodbye()
		m.cancel()
		m.listener.Close()
		for _, s := range m.sessions() {
			s.close(codeBye, "")
		}
	}
	m.work.Wait()
	if first {
		m.transport.Close()
		m.conn.Close()
	}
}

// flush waits until nothing is left that could be sent, but not for long.
func (m *Mesh) flush() {
	deadline := time.Now().Add(flushTime)
	for time.Now().Before(deadline) && m.ctx.Err() == nil {
		busy := false
		for _, l := range *m.open.Load() {
			busy = busy || l.busy()
		}
		if !busy {
			return
		}
		time.Sleep(flushTime / 100)
	}
}

// goodbye tells the peers that this node goes, and waits a little until they have read what was sent to them.
func (m *Mesh) goodbye() {
	sessions := m.sessions()
	for _, s := range sessions {
		s.sayBye()
	}
	timer := time.NewTimer(goodbyeTime)
	defer timer.Stop()
	for _, s := range sessions {
		select {
		case <-s.conn.Context().Done():
		case <-timer.C:
			return
		}
	}
}
