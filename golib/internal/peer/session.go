package peer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/redox-loader/redox/golib/internal/exchange"
	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/wire"
)

// session is the life of one accepted connection. All that was said on it is forgotten with it: both sides say it again
// on the next one.
//
// Locks are taken in the order Mesh.mu, lane.mu, session.mu.
type session struct {
	mesh    *Mesh
	peer    *peer
	conn    *quic.Conn
	control *quic.Stream

	wakeControl chan struct{} // there is something to write on the control stream
	wakePush    chan struct{} // there may be something to send
	roomControl chan struct{} // the outbox was written

	mu      sync.Mutex
	outbox  []byte             // control messages to be written
	dirty   map[*lane]struct{} // lanes whose credit has changed
	credits map[laneRank]*credit
	endings map[laneRank]*ending
	opened  uint64 // data streams of ours
	ended   uint64 // data streams of the peer that were read to their end, or given up
	bye     bool   // the peer goes, after expected streams
	streams uint64
	saidBye bool
	cutting bool
}

// credit is what a rank of the peer takes in one lane.
type credit struct {
	from, upto uint64
	over       bool // the rank has left
}

// ending is what the peer's ranks have said about the end of what they send to one of our ranks.
type ending struct {
	left map[uint32]struct{}
	next uint64
}

var errStale = errors.New("another connection with this node is newer")

// join makes an accepted connection the one with its peer, in place of an older one.
func (m *Mesh) join(p *peer, conn *quic.Conn, control *quic.Stream, hello wire.Hello) (*session, error) {
	s := &session{
		mesh: m, peer: p, conn: conn, control: control,
		wakeControl: make(chan struct{}, 1), wakePush: make(chan struct{}, 1), roomControl: make(chan struct{}, 1),
		dirty: map[*lane]struct{}{}, credits: map[laneRank]*credit{}, endings: map[laneRank]*ending{},
	}
	control.SetPriority(0, false) // credit is never behind samples
	m.mu.Lock()
	if m.closing || hello.Incarnation < p.newest {
		m.mu.Unlock()
		return nil, errStale
	}
	old := p.session
	p.newest = hello.Incarnation
	p.session = nil
	m.mu.Unlock()
	if old != nil {
		m.part(old)
		m.work.Go(func() { old.close(codeStale, "") })
	}
	m.mu.Lock()
	if m.closing || p.session != nil {
		m.mu.Unlock()
		return nil, errStale
	}
	p.session = s
	p.refusal, p.trouble, p.strange = nil, nil, time.Time{}
	first := p.counters.connects.Add(1) == 1
	for _, l := range m.lanes {
		l.meet(s)
	}
	m.change()
	m.mu.Unlock()
	word := "connected"
	if !first {
		word = "connected again"
	}
	m.config.Log("info", fmt.Sprintf("%s with node %d at %v", word, p.node, conn.RemoteAddr()))
	return s, nil
}

// part ends what lanes expect of a session.
func (m *Mesh) part(s *session) {
	m.mu.Lock()
	if s.peer.session == s {
		s.peer.session = nil
	}
	lanes := make([]*lane, 0, len(m.lanes))
	for _, l := range m.lanes {
		lanes = append(lanes, l)
	}
	m.change()
	m.mu.Unlock()
	for _, l := range lanes {
		l.part(s)
	}
}

// run serves the session until its connection ends.
func (s *session) run() {
	var work sync.WaitGroup
	work.Go(s.readControl)
	work.Go(s.writeControl)
	work.Go(s.push)
	work.Go(func() { s.acceptStreams(&work) })
	<-s.conn.Context().Done()
	s.mesh.part(s)
	work.Wait()
	s.mesh.wakePushers() // a queue that this session was working on is free for the next one
	s.mu.Lock()
	left := s.bye || s.saidBye
	s.mu.Unlock()
	switch cause := context.Cause(s.conn.Context()); {
	case s.mesh.ctx.Err() != nil:
	case left:
		s.mesh.config.Log("info", fmt.Sprintf("node %d has left", s.peer.node))
	default:
		s.mesh.config.Log("warning", fmt.Sprintf("connection with node %d lost: %v; its samples are read from storage",
			s.peer.node, describe(cause)))
	}
}

// describe says why a connection has ended.
func describe(cause error) error {
	var closed *quic.ApplicationError
	if !errors.As(cause, &closed) {
		return cause
	}
	switch closed.ErrorCode {
	case codeBye:
		return errors.New("it has closed it")
	case codeViolation:
		if closed.Remote {
			return errors.New("it says that this node broke the protocol")
		}
		return errors.New("it broke the protocol")
	case codeStale:
		return errors.New("there is a newer one")
	}
	return cause
}

// close ends the connection.
func (s *session) close(code quic.ApplicationErrorCode, words string) {
	s.conn.CloseWithError(code, words)
}

// cut ends the connection with a peer that broke the protocol, and refuses it for a while. It does not wait for what
// the calling goroutine belongs to.
func (s *session) cut(violation error) {
	s.mu.Lock()
	first := !s.cutting
	s.cutting = true
	s.mu.Unlock()
	if !first || s.conn.Context().Err() != nil {
		return
	}
	m := s.mesh
	m.mu.Lock()
	s.peer.barred = time.Now().Add(barredTime)
	m.mu.Unlock()
	m.refuse(s.peer.node, s.conn.RemoteAddr(), fmt.Errorf("it broke the protocol: %w; refused for %v", violation, barredTime), nil)
	s.close(codeViolation, "")
}

// violation is the error of a peer that broke the protocol.
func violation(format string, args ...any) error { return fault.New(fault.Peer, format, args...) }

// first is the lowest rank of the peer.
func (s *session) first() int { return firstRank(s.mesh.config.Ranks, s.peer.node) }

// owns is whether a rank is the peer's.
func (s *session) owns(rank uint32) bool {
	first := s.first()
	return int64(rank) >= int64(first) && int64(rank) < int64(first+s.mesh.config.Ranks[s.peer.node])
}

// ours is whether a rank is this node's.
func (s *session) ours(rank uint32) bool {
	m := s.mesh
	first := firstRank(m.config.Ranks, m.config.Node)
	return int64(rank) >= int64(first) && int64(rank) < int64(first+m.config.Ranks[m.config.Node])
}

// streamEnded counts the peer's data streams, so that its BYE can be followed.
func (s *session) streamEnded() {
	s.mu.Lock()
	s.ended++
	last := s.bye && s.ended >= s.streams
	s.mu.Unlock()
	if last {
		s.close(codeBye, "")
	}
}

// sayBye tells the peer that this node goes. The peer closes the connection when it has read everything.
func (s *session) sayBye() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.saidBye {
		s.saidBye = true
		s.outbox = wire.Bye{Streams: s.opened}.Append(s.outbox)
		signal(s.wakeControl)
	}
}

func idOf(l wire.Lane) exchange.ID    { return exchange.ID(l) }
func laneOf(id exchange.ID) wire.Lane { return wire.Lane(id) }
