package peer

import (
	"slices"

	"github.com/quic-go/quic-go"

	"github.com/redox-loader/redox/golib/internal/exchange"
)

// outlet is what a lane has for one rank of another node. Guarded by lane.mu.
type outlet struct {
	rank  int
	node  int
	queue []item // from head on, ordinals ascending
	head  int
	gone  uint64 // samples below this ordinal were taken from the queue to be sent, or dropped

	// Of the session that is served:
	session *session
	stream  *quic.SendStream // nil: not opened yet
	said    uint64           // below this ordinal the session's node knows what became of each sample
	busy    bool             // a pusher is writing to the stream
	dead    bool             // the rank takes nothing more
}

// item is a sample to be sent, or one that will not come: then out.Done is nil.
type item struct {
	out exchange.Outgoing
}

func (i *item) dropped() bool { return i.out.Done == nil }

// drop makes an item one that will not come, and adds its Done to those to be called without the lock.
func (i *item) drop(given []func(bool)) []func(bool) {
	if i.dropped() {
		return given
	}
	given = append(given, i.out.Done)
	i.out.Data, i.out.Done = nil, nil
	return given
}

func (o *outlet) items() []item { return o.queue[o.head:] }

// pop takes the first item away.
func (o *outlet) pop() {
	o.gone = max(o.gone, o.queue[o.head].out.Ordinal+1)
	o.queue[o.head] = item{}
	o.head++
	if o.head == len(o.queue) {
		o.queue, o.head = o.queue[:0], 0
	} else if o.head > 64 && o.head > len(o.queue)/2 {
		n := copy(o.queue, o.items())
		clear(o.queue[n:])
		o.queue, o.head = o.queue[:n], 0
	}
}

// clear drops the whole queue.
func (o *outlet) clear(given []func(bool)) []func(bool) {
	for i := range o.items() {
		given = o.items()[i].drop(given)
	}
	o.queue, o.head = nil, 0
	return given
}

// insert keeps the order of the ordinals; nearly always the place is the end.
func (o *outlet) insert(it item) {
	i := len(o.queue)
	for i > o.head && o.queue[i-1].out.Ordinal > it.out.Ordinal {
		i--
	}
	o.queue = slices.Insert(o.queue, i, it)
}

// outlet is the one for a rank, nil where nothing can be sent. lane.mu is held.
func (l *lane) outlet(rank int) *outlet {
	o := l.outlets[rank]
	if o == nil {
		node := nodeOf(l.config.Ranks, rank)
		if node < 0 || node == l.mesh.config.Node || l.closed {
			return nil
		}
		o = &outlet{rank: rank, node: node}
		l.outlets[rank] = o
	}
	if o.dead || l.closed {
		return nil
	}
	return o
}

// Send queues a sample.
func (l *lane) Send(out exchange.Outgoing) {
	l.mu.Lock()
	o := l.outlet(out.To)
	taken := o != nil && out.Ordinal >= o.gone
	if taken {
		o.insert(item{out})
	}
	l.mu.Unlock()
	if !taken {
		out.Done(false)
		return
	}
	l.mesh.wake(o.node)
}

// Skip tells a receiver that a sample will not come.
func (l *lane) Skip(to int, ordinal uint64) {
	l.mu.Lock()
	o := l.outlet(to)
	if o != nil {
		o.insert(item{exchange.Outgoing{To: to, Ordinal: ordinal}})
	}
	l.mu.Unlock()
	if o != nil {
		l.mesh.wake(o.node)
	}
}

// Shed gives up what is queued below a global position.
func (l *lane) Shed(below int64) {
	var given []func(bool)
	l.mu.Lock()
	for _, o := range l.outlets {
		items := o.items()
		before := len(given)
		for i := range items {
			if items[i].out.Position < below {
				given = items[i].drop(given)
			}
		}
		l.mesh.peers[o.node].counters.dropped.Add(int64(len(given) - before))
	}
	l.mu.Unlock()
	for _, done := range given {
		done(false)
	}
	if len(given) > 0 {
		l.mesh.wakePushers()
	}
}

// giveUp hears that a rank has left the lane, perhaps before anything was queued for it.
func (l *lane) giveUp(rank int) {
	var given []func(bool)
	l.mu.Lock()
	if o := l.outlet(rank); o != nil {
		given = o.clear(given)
		o.dead = true
		l.mesh.peers[o.node].counters.dropped.Add(int64(len(given)))
	}
	l.mu.Unlock()
	for _, done := range given {
		done(false)
	}
}

// busy is whether there is something that could be sent now.
func (l *lane) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.outlets {
		s := l.inflows[o.node].session
		if s == nil {
			continue
		}
		c, known := s.creditOf(laneRank{l.key.id, o.rank})
		if o.busy || known && len(o.items()) > 0 && o.items()[0].out.Ordinal < c.upto {
			return true
		}
	}
	return false
}

// Owes says whether samples are still to go to a node that is connected.
func (l *lane) Owes() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.outlets {
		if l.inflows[o.node].session != nil && (o.busy || len(o.items()) > 0) {
			return true
		}
	}
	return false
}

// wake has the pusher of a node look at its queues.
func (m *Mesh) wake(node int) {
	m.mu.Lock()
	s := m.peers[node].session
	m.mu.Unlock()
	if s != nil {
		signal(s.wakePush)
	}
}

func (m *Mesh) wakePushers() {
	for _, s := range m.sessions() {
		signal(s.wakePush)
	}
}
