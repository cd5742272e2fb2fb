package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/wire"
)

// dial keeps a connection to a higher node, for as long as the mesh lives.
func (m *Mesh) dial(p *peer) {
	pause := dialFirst
	for m.ctx.Err() == nil {
		m.mu.Lock()
		address, barred := p.card.Address, p.barred
		ready := m.met && address != "" && !m.closing
		m.mu.Unlock()
		if !ready {
			m.sleep(p, time.Hour)
			continue
		}
		if wait := time.Until(barred); wait > 0 {
			m.sleep(p, wait)
			continue
		}
		s, err := m.connect(p, address)
		if err == nil {
			s.run()
			pause = dialFirst
		} else if m.ctx.Err() == nil {
			m.failed(p, address, err)
		}
		if m.sleep(p, pause) {
			pause = dialFirst
			continue
		}
		pause = min(2*pause, dialMost)
	}
}

// sleep waits, but not longer than until there is another card; then it is true.
func (m *Mesh) sleep(p *peer, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-p.meet:
		return true
	case <-timer.C:
	case <-m.ctx.Done():
	}
	return false
}

// refusal is why an attempt to connect failed. fatal, if there is one, is for Await.
type refusal struct {
	error
	fatal   error
	refused bool // somebody said no; else nobody answered
}

func (r refusal) Unwrap() error { return r.error }

// failed notes why an attempt failed.
func (m *Mesh) failed(p *peer, address string, err error) {
	var r refusal
	if !errors.As(err, &r) || !r.refused {
		m.mu.Lock()
		if p.strange.IsZero() { // else silence tells less than what was said before
			p.trouble = err
		}
		m.mu.Unlock()
		return
	}
	from, _ := net.ResolveUDPAddr("udp", address)
	m.refuse(p.node, from, r.error, r.fatal)
}

// connect makes one attempt. Only the server's HELLO means that the connection may be used: a client whose certificate
// is refused has a connection for a moment.
func (m *Mesh) connect(p *peer, address string) (*session, error) {
	ctx, cancel := context.WithTimeout(m.ctx, handshakeTime)
	defer cancel()
	target, err := resolve(ctx, address)
	if err != nil {
		return nil, err
	}
	var ours error
	verify := m.verifyServer(p.node)
	config := m.tlsConfig(func(state tls.ConnectionState) error {
		ours = verify(state)
		return ours
	})
	conn, err := m.transport.Dial(ctx, target, config, m.quicConfig())
	if err != nil {
		return nil, m.explain(p, err, ours)
	}
	s, err := m.greetServer(ctx, p, conn)
	if err != nil {
		var r refusal
		if !errors.As(err, &r) {
			err = m.explain(p, errors.Join(err, context.Cause(conn.Context())), nil)
		}
		conn.CloseWithError(codeNotNow, "")
		return nil, err
	}
	return s, nil
}

// resolve looks up a name; an address costs no look-up.
func resolve(ctx context.Context, address string) (*net.UDPAddr, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	number, err := net.DefaultResolver.LookupPort(ctx, "udp", port)
	if err != nil {
		return nil, err
	}
	if ip := net.ParseIP(host); ip != nil {
		return &net.UDPAddr{IP: ip, Port: number}, nil
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	return &net.UDPAddr{IP: ips[0].Unmap().AsSlice(), Port: number}, nil
}

// explain says why there is no connection. ours is what we did not like about the other side's certificate.
func (m *Mesh) explain(p *peer, err, ours error) error {
	var closed *quic.ApplicationError
	var silent *quic.IdleTimeoutError
	var transport *quic.TransportError
	switch {
	case ours != nil:
		r := refusal{error: fmt.Errorf("its certificate is not accepted: %w; %s", ours, m.identity.hint()), refused: true}
		if m.lasting(p) {
			e := fault.Wrap(fault.Peer, r.error, "node %d", p.node)
			e.Peer = fmt.Sprintf("node %d", p.node)
			r.fatal = e
		}
		return r
	case alerted(err):
		m.mu.Lock()
		address := p.card.Address
		m.mu.Unlock()
		from, _ := net.ResolveUDPAddr("udp", address)
		m.alertedBy(p.node, from)
		return refusal{error: m.notOurs(p.node)}
	case errors.As(err, &closed) && closed.Remote:
		fatal := final(closed.ErrorCode, fmt.Sprintf("node %d refuses this node", p.node))
		if fatal == nil {
			return fmt.Errorf("it refuses for now (code %d)", closed.ErrorCode)
		}
		return refusal{error: fatal, refused: true, fatal: fatal}
	case errors.As(err, &silent):
		return errors.New("nobody answers")
	case errors.As(err, &transport) && transport.Remote && transport.ErrorCode == quic.ConnectionRefused:
		return errors.New("it does not take connections yet")
	}
	return err
}

// greetServer says HELLO and waits for the answer.
func (m *Mesh) greetServer(ctx context.Context, p *peer, conn *quic.Conn) (*session, error) {
	control, err := conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	control.SetDeadline(deadline)
	if _, err := control.Write(m.hello().Append(nil)); err != nil {
		return nil, err
	}
	hello, err := readHello(control)
	if err != nil {
		return nil, err
	}
	if code, err := m.judge(hello, p.node); err != nil {
		conn.CloseWithError(code, err.Error())
		return nil, refusal{error: err, refused: true, fatal: final(code, fmt.Sprintf("node %d can't be met", p.node))}
	}
	control.SetDeadline(time.Time{})
	return m.join(p, conn, control, hello)
}

// accept greets those who dial.
func (m *Mesh) accept() {
	for {
		conn, err := m.listener.Accept(m.ctx)
		if err != nil {
			return // the listener is closed
		}
		if a, is := conn.Context().Value(attemptKey{}).(*attempt); is {
			a.succeed()
		}
		m.work.Go(func() {
			s, err := m.greetClient(conn)
			if err != nil {
				conn.CloseWithError(codeNotNow, "")
				return
			}
			s.run()
		})
	}
}

// greetClient waits for a dialer's HELLO and answers it if there is nothing against it.
func (m *Mesh) greetClient(conn *quic.Conn) (*session, error) {
	node, err := m.identify(conn.ConnectionState().TLS)
	if err != nil {
		return nil, err // its card has changed during the handshake
	}
	ctx, cancel := context.WithTimeout(m.ctx, handshakeTime)
	defer cancel()
	control, err := conn.AcceptStream(ctx)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	control.SetDeadline(deadline)
	hello, err := readHello(control)
	if err != nil {
		if fault.KindOf(err) == fault.Peer {
			m.refuse(node, conn.RemoteAddr(), err, nil)
			conn.CloseWithError(codeViolation, "no hello")
		}
		return nil, err
	}
	claimed := int(hello.Node)
	if node < 0 {
		node = claimed // one of us, but its certificate does not say which; a card may
		if err := m.cardFits(claimed, conn.ConnectionState().TLS); err != nil {
			m.refuse(-1, conn.RemoteAddr(), err, nil)
			conn.CloseWithError(codeIdentity, "card")
			return nil, err
		}
	}
	code, err := m.judge(hello, node)
	if err == nil && node > m.config.Node {
		code, err = codeIdentity, fmt.Errorf("node %d dialed, but the lower node dials", node)
	}
	if err != nil {
		m.refuse(node, conn.RemoteAddr(), err, final(code, fmt.Sprintf("node %d can't be met", node)))
		conn.CloseWithError(code, "")
		return nil, err
	}
	if _, err := control.Write(m.hello().Append(nil)); err != nil {
		return nil, err
	}
	control.SetDeadline(time.Time{})
	s, err := m.join(m.peers[node], conn, control, hello)
	if err != nil {
		conn.CloseWithError(codeStale, "")
	}
	return s, err
}

// cardFits compares a certificate that names no node with the card of the node that its owner claims to be, if there is
// one that says.
func (m *Mesh) cardFits(node int, state tls.ConnectionState) error {
	if node >= len(m.peers) {
		return nil // judge will refuse it
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	want := m.peers[node].card.Fingerprint
	if want != (Fingerprint{}) && want != fingerprintOf(state.PeerCertificates[0]) {
		return fmt.Errorf("it says that it is node %d, but the card of that node has another key", node)
	}
	return nil
}

func readHello(control io.Reader) (wire.Hello, error) {
	var head [wire.HeadSize]byte
	if _, err := io.ReadFull(control, head[:]); err != nil {
		return wire.Hello{}, err
	}
	kind, size, err := wire.ParseHead(head[:])
	if err != nil {
		return wire.Hello{}, err
	}
	if kind != wire.KindHello {
		return wire.Hello{}, fault.New(fault.Peer, "the first message is no HELLO but one of kind %d", kind)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(control, body); err != nil {
		return wire.Hello{}, err
	}
	return wire.ParseHello(body)
}

// judge says what is wrong with a HELLO of the one who is node.
func (m *Mesh) judge(h wire.Hello, node int) (quic.ApplicationErrorCode, error) {
	ours := m.hello()
	switch {
	case h.Version != ours.Version:
		return codeVersion, fmt.Errorf("it speaks version %d of the protocol, this node version %d", h.Version, ours.Version)
	case h.Nodes != ours.Nodes:
		return codeWorld, fmt.Errorf("it counts %d nodes, this node %d", h.Nodes, ours.Nodes)
	case int(h.Node) != node || node == m.config.Node || node >= len(m.peers):
		return codeIdentity, fmt.Errorf("it says that it is node %d, with the certificate of node %d", h.Node, node)
	case h.World != ours.World:
		return codeWorld, errors.New("it has other numbers of ranks for the nodes")
	case h.Plan != ours.Plan:
		return codePlan, fmt.Errorf("it has another plan (hash %x, this node %x)", h.Plan[:4], ours.Plan[:4])
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.peers[node]
	switch {
	case h.Incarnation < max(p.card.Incarnation, p.newest):
		return codeStale, fmt.Errorf("it is an earlier start of node %d", node)
	case time.Now().Before(p.barred):
		return codeNotNow, errors.New("it broke the protocol not long ago")
	}
	return 0, nil
}
