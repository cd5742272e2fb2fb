package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// The codes with which a connection is closed.
const (
	codeBye       quic.ApplicationErrorCode = iota // the node goes
	codeVersion                                    // another version of the protocol
	codeWorld                                      // other numbers of nodes or ranks
	codePlan                                       // another plan hash
	codeIdentity                                   // another node than its certificate says
	codeStale                                      // an earlier start of the node, or a connection that was replaced
	codeViolation                                  // the protocol was broken
	codeNotNow                                     // barred for some time, or closing
)

// reasons says what a code means, as the end of a sentence that begins with who refuses whom.
var reasons = map[quic.ApplicationErrorCode]string{
	codeVersion:  "the nodes run different versions of redox",
	codeWorld:    "the nodes do not agree on how many nodes and ranks there are",
	codePlan:     "the nodes do not have the same plan: seed, data set, version and all options that decide the order must be equal",
	codeIdentity: "the certificate belongs to another node",
}

// final makes the error of a code that will not pass by waiting; nil for one that may.
func final(code quic.ApplicationErrorCode, who string) error {
	reason, is := reasons[code]
	if !is {
		return nil
	}
	kind := fault.Invalid
	if code == codeIdentity {
		kind = fault.Peer
	}
	e := fault.New(kind, "%s: %s", who, reason)
	e.Peer = who
	return e
}

// refuse counts and logs a connection that did not come about. node may be -1; fatal, if there is one, ends Await.
func (m *Mesh) refuse(node int, from net.Addr, reason, fatal error) {
	m.refused.Add(1)
	who := fmt.Sprintf("a stranger at %v", from)
	if node < 0 {
		node = m.nodeAt(from)
	}
	if node < 0 || node >= len(m.peers) {
		if m.guard.tell() {
			m.config.Log("warning", fmt.Sprintf("refused %s: %v", who, reason))
		}
		return
	}
	p := m.peers[node]
	p.counters.refused.Add(1)
	m.mu.Lock()
	p.trouble = reason
	if fatal != nil {
		p.refusal = fatal
	}
	_, before := p.told[reason.Error()]
	if len(p.told) < 100 { // reasons that contain what the peer says are not endless
		p.told[reason.Error()] = struct{}{}
	} else {
		before = true
	}
	m.change()
	m.mu.Unlock()
	if !before {
		m.config.Log("warning", fmt.Sprintf("no connection with node %d (%v): %v", node, from, reason))
	}
}

// nodeAt is the node whose card has this address, or -1. Nodes dial from the socket on which they listen.
func (m *Mesh) nodeAt(from net.Addr) int {
	if from == nil {
		return -1
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.peers {
		if p.card.Address == from.String() {
			return p.node
		}
	}
	return -1
}

// lasting notes that a peer's certificate, or ours in its eyes, does not fit, and says whether that has been so for too
// long for a card that is on its way, or a process of an earlier run that is about to end.
func (m *Mesh) lasting(p *peer) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.strange.IsZero() {
		p.strange = time.Now()
	}
	return time.Since(p.strange) >= strangeTime
}

// notOurs is the error when the other side does not take this node's certificate.
func (m *Mesh) notOurs(node int) error {
	e := fault.New(fault.Peer, "node %d refuses this node's certificate; %s", node, m.identity.hint())
	e.Peer = fmt.Sprintf("node %d", node)
	return e
}

// alerted is whether the other side ended the handshake because of what it was shown.
func alerted(err error) bool {
	var e *quic.TransportError
	return errors.As(err, &e) && e.Remote && e.ErrorCode.IsCryptoError()
}

// guard watches strangers. It costs those who try, not those who are connected.
type guard struct {
	mu     sync.Mutex
	since  time.Time
	count  int
	from   map[string]int
	logged int
}

// suspicious is whether a new address must first show that it can read what is sent to it (a Retry).
func (g *guard) suspicious(from net.Addr) bool {
	host, _, _ := net.SplitHostPort(from.String())
	g.mu.Lock()
	defer g.mu.Unlock()
	g.turn()
	return g.from[host] >= strangersRate || g.count >= strangersRate
}

// turn begins a new second.
func (g *guard) turn() {
	if now := time.Now(); g.from == nil || now.Sub(g.since) >= time.Second {
		g.since, g.count, g.from = now, 0, map[string]int{}
	}
}

// begin counts a handshake, and says whether there may be one more.
func (g *guard) begin(from net.Addr) bool {
	host, _, _ := net.SplitHostPort(from.String())
	g.mu.Lock()
	defer g.mu.Unlock()
	g.turn()
	if g.count >= handshakesMost || g.from[host] >= 2*strangersRate {
		return false
	}
	g.count++
	g.from[host]++
	return true
}

// tell is whether one more line about strangers may go to the log.
func (g *guard) tell() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.logged++
	return g.logged <= 20
}

var errNotNow = errors.New("not now")

// admit decides about a connection before any cryptography. Who is told no comes again.
func (m *Mesh) admit(info *quic.ClientInfo) (*quic.Config, error) {
	m.mu.Lock()
	ready := m.met && !m.closing
	m.mu.Unlock()
	if !ready || !m.guard.begin(info.RemoteAddr) {
		return nil, errNotNow
	}
	return m.quicConfig(), nil
}

// attempted watches a handshake, since quic-go does not say which ones failed.
func (m *Mesh) attempted(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
	a := &attempt{from: info.RemoteAddr}
	context.AfterFunc(ctx, func() { m.ended(a, context.Cause(ctx)) })
	return context.WithValue(ctx, attemptKey{}, a), nil
}

type attemptKey struct{}

// attempt is a connection that somebody wants.
type attempt struct {
	from net.Addr
	mu   sync.Mutex
	done bool // the handshake has succeeded
}

func (a *attempt) succeed() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.done = true
}

// ended hears of every connection's end, and tells those that never were one.
func (m *Mesh) ended(a *attempt, cause error) {
	a.mu.Lock()
	done := a.done
	a.mu.Unlock()
	if done || m.ctx.Err() != nil {
		return
	}
	node := m.nodeAt(a.from)
	var e *quic.TransportError
	switch {
	case node >= 0 && alerted(cause):
		m.alertedBy(node, a.from)
	case errors.As(cause, &e) && !e.Remote:
		m.refuse(-1, a.from, fmt.Errorf("its certificate is not accepted: %w", plain(e)), nil)
	}
}

// plain is what is behind an error of the handshake on this side, without the names of QUIC for it.
func plain(e *quic.TransportError) error {
	for _, inner := range e.Unwrap() {
		if inner != nil && inner != net.ErrClosed {
			return inner
		}
	}
	return e
}

// alertedBy hears that a node does not take our certificate.
func (m *Mesh) alertedBy(node int, from net.Addr) {
	reason := m.notOurs(node)
	if !m.lasting(m.peers[node]) {
		m.refuse(node, from, reason, nil)
		return
	}
	m.refuse(node, from, reason, reason)
}
