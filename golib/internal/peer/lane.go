package peer

import (
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/redox-loader/redox/golib/internal/exchange"
	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/wire"
)

// lane is one rank's exchange with all other nodes during one pass. This file has the incoming half; outlet.go the
// outgoing one.
type lane struct {
	mesh   *Mesh
	config exchange.Config
	key    laneRank

	mu      sync.Mutex
	ring    *ring
	slots   []slot // of the ordinals done ≤ n < next, at n modulo Credit
	next    uint64 // ordinals that were expected
	done    uint64 // ordinals that are not needed any more
	inflows []inflow
	inlets  map[*inlet]struct{}
	outlets map[int]*outlet // by rank
	closed  bool
}

var _ exchange.Lane = (*lane)(nil)

// slot is what is known of one incoming sample.
type slot struct {
	position int64
	owner    int
	status   exchange.Status
	filler   *inlet // the stream that is writing into the ring
	sample   exchange.Sample
}

// inflow is what one node is to send to this lane. Everything but upto is forgotten with the connection.
type inflow struct {
	session *session // nil: not connected, so what it owns is lost
	from    uint64   // what was expected before the connection began was lost
	upto    uint64   // credit: above the last sample expected from this node
	end     uint64   // nothing comes from here on
	late    bool     // a sample that is still on its way is not needed any more
	told    credit   // what was said last
}

// Open begins a lane.
func (m *Mesh) Open(config exchange.Config) (exchange.Lane, error) {
	if config.Credit < 2 || config.Largest < 0 || config.Largest > wire.MaxLength || config.Notify == nil ||
		!slices.Equal(config.Ranks, m.config.Ranks) || nodeOf(config.Ranks, config.Rank) != m.config.Node {
		return nil, fault.New(fault.Internal, "a lane of rank %d of %v with %d samples of %d bytes, on node %d of %v",
			config.Rank, config.Ranks, config.Credit, config.Largest, m.config.Node, m.config.Ranks)
	}
	l := &lane{mesh: m, config: config, key: laneRank{config.ID, config.Rank}, slots: make([]slot, config.Credit),
		inflows: make([]inflow, m.config.Nodes), inlets: map[*inlet]struct{}{}, outlets: map[int]*outlet{}}
	var err error
	if l.ring, err = newRing(l, config.Credit, config.Largest); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closing {
		return nil, fault.New(fault.Canceled, "the exchange is closed")
	}
	if m.lanes[l.key] != nil {
		return nil, fault.New(fault.Internal, "lane %v of rank %d is open already", l.key.id, l.key.rank)
	}
	m.lanes[l.key] = l
	m.left = slices.DeleteFunc(m.left, func(key laneRank) bool { return key == l.key })
	m.publish()
	for _, p := range m.peers {
		if p.session != nil {
			l.meet(p.session)
		}
	}
	return l, nil
}

// publish makes the set of open lanes known to pushers. Mesh.mu is held.
func (m *Mesh) publish() {
	open := make([]*lane, 0, len(m.lanes))
	for _, l := range m.lanes {
		open = append(open, l)
	}
	m.open.Store(&open)
}

func (m *Mesh) lane(id exchange.ID, rank int) *lane {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lanes[laneRank{id, rank}]
}

// meet begins with a session. Mesh.mu is held, so that none is missed.
func (l *lane) meet(s *session) {
	end, over := s.over(l.key)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !over {
		end = math.MaxUint64
	}
	l.inflows[s.peer.node] = inflow{session: s, from: l.next, upto: l.next, end: end}
	for _, rank := range s.gone(l.key) { // before the lane was open here
		if o := l.outlet(rank); o != nil {
			o.dead = true
		}
	}
	if l.next > 0 {
		s.tell(l) // or it would keep what it has for this lane as long as nothing more is expected of it
	}
}

// part ends with a session: what its node was to send is lost.
func (l *lane) part(s *session) {
	l.mu.Lock()
	in := &l.inflows[s.peer.node]
	lost := false
	if in.session == s {
		*in = inflow{}
		lost = l.lose(s.peer.node, 0, math.MaxUint64)
	}
	l.mu.Unlock()
	if lost {
		l.config.Notify()
	}
}

// lose gives up a node's samples from ≤ n < to that are on their way, and says whether there were any. lane.mu is held.
func (l *lane) lose(owner int, from, to uint64) (lost bool) {
	for n := max(from, l.done); n < min(to, l.next); n++ {
		if s := l.slot(n); s.owner == owner && s.status == exchange.Coming {
			s.status, s.filler = exchange.Lost, nil
			lost = true
		}
	}
	return lost
}

func (l *lane) slot(ordinal uint64) *slot { return &l.slots[ordinal%uint64(len(l.slots))] }

// Expect says where the next incoming sample comes from.
func (l *lane) Expect(position int64, owner int) {
	l.mu.Lock()
	n := l.next
	if n-l.done >= uint64(len(l.slots)) {
		l.mu.Unlock()
		panic("peer: more samples are expected than there is credit for") // our own bug
	}
	l.next++
	s := l.slot(n)
	*s = slot{position: position, owner: owner, status: exchange.Lost}
	var session *session
	if owner >= 0 && owner < len(l.inflows) && !l.closed {
		if in := &l.inflows[owner]; in.session != nil && n < in.end {
			s.status = exchange.Coming
			in.upto = n + 1
			session = in.session
		}
	}
	l.mu.Unlock()
	if session != nil {
		session.tell(l)
	}
}

// Look says what became of an incoming sample.
func (l *lane) Look(ordinal uint64) (exchange.Sample, exchange.Status) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ordinal < l.done || ordinal >= l.next || l.closed {
		return exchange.Sample{}, exchange.Lost
	}
	s := l.slot(ordinal)
	return s.sample, s.status
}

// Done says that the incoming samples below this ordinal are not needed any more. Their owners are told if they might
// still send them.
func (l *lane) Done(below uint64) {
	var late [4]*session // rarely more than one
	told := late[:0]
	l.mu.Lock()
	for n := l.done; n < min(below, l.next); n++ {
		s := l.slot(n)
		if s.status == exchange.Coming {
			if in := &l.inflows[s.owner]; in.session != nil && !in.late {
				in.late = true
				told = append(told, in.session)
			}
		}
		*s = slot{owner: -1, status: exchange.Lost}
	}
	l.done = max(l.done, min(below, l.next))
	l.mu.Unlock()
	for _, s := range told {
		s.tell(l)
	}
}

// appendCredit writes what a session's node may send, if it differs from what it was told.
func (l *lane) appendCredit(b []byte, s *session) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	in := &l.inflows[s.peer.node]
	if in.session != s || l.closed {
		return b
	}
	in.late = false
	now := credit{from: max(in.from, l.done, in.told.from)}
	now.upto = max(in.upto, now.from, in.told.upto)
	if now == in.told {
		return b
	}
	in.told = now
	return wire.Credit{Lane: laneOf(l.key.id), Rank: uint32(l.key.rank), From: now.from, Upto: now.upto}.Append(b)
}

// dropped hears that a node will not send some of its samples.
func (l *lane) dropped(s *session, from, to uint64) {
	l.mu.Lock()
	lost := l.inflows[s.peer.node].session == s && l.lose(s.peer.node, from, to)
	l.mu.Unlock()
	if lost {
		l.config.Notify()
	}
}

// leftBy hears that ranks of a node have left the lane: when all have, nothing more comes from it.
func (l *lane) leftBy(s *session) {
	end, over := s.over(l.key)
	if !over {
		return
	}
	l.mu.Lock()
	in := &l.inflows[s.peer.node]
	lost := false
	if in.session == s {
		in.end = end
		lost = l.lose(s.peer.node, end, math.MaxUint64)
	}
	l.mu.Unlock()
	if lost {
		l.config.Notify()
	}
}

// Close ends the lane.
func (l *lane) Close() {
	m := l.mesh
	m.mu.Lock()
	if m.lanes[l.key] != l {
		m.mu.Unlock()
		return
	}
	delete(m.lanes, l.key)
	m.left = append(m.left, l.key)
	if len(m.left) > leftMost {
		m.left = slices.Delete(m.left, 0, 1)
	}
	m.publish()
	var sessions []*session
	for _, p := range m.peers {
		if p.session != nil {
			sessions = append(sessions, p.session)
		}
	}
	m.mu.Unlock()

	l.mu.Lock()
	l.closed = true
	next := map[int]uint64{}
	var given []func(bool)
	for rank, o := range l.outlets {
		next[rank] = o.gone
		given = o.clear(given)
	}
	inlets := slices.Collect(maps.Keys(l.inlets))
	l.ring.drain()
	l.mu.Unlock()
	for _, in := range inlets {
		in.cancel()
	}
	for _, done := range given {
		done(false)
	}
	for _, s := range sessions {
		s.forgetLane(l.key)
		s.sayLeft(l.key, func(rank int) uint64 { return next[rank] })
	}
	l.endStreams()
}
