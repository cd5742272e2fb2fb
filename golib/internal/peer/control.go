package peer

import (
	"errors"
	"io"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/redox-loader/redox/golib/internal/exchange"
	"github.com/redox-loader/redox/golib/internal/wire"
)

// writeControl writes what is to be said, as it gathers.
func (s *session) writeControl() {
	pause := time.NewTimer(0)
	defer pause.Stop()
	done := s.conn.Context().Done()
	buf := bytebufferpool.Get()
	defer bytebufferpool.Put(buf)
	for {
		select {
		case <-s.wakeControl:
		case <-done:
			return
		}
		buf.B = s.gather(buf.B[:0])
		if len(buf.B) > 0 {
			if _, err := s.control.Write(buf.B); err != nil {
				return
			}
			signal(s.roomControl)
		}
		pause.Reset(controlPause)
		select {
		case <-pause.C:
		case <-done:
			return
		}
	}
}

// gather takes what is to be said. Credit goes last, and only the latest.
func (s *session) gather(b []byte) []byte {
	s.mu.Lock()
	b = append(b, s.outbox...)
	s.outbox = s.outbox[:0]
	if cap(s.outbox) > outboxMost/16 {
		s.outbox = nil
	}
	lanes := make([]*lane, 0, 8)
	for l := range s.dirty {
		lanes = append(lanes, l)
	}
	clear(s.dirty)
	s.mu.Unlock()
	for _, l := range lanes {
		b = l.appendCredit(b, s)
	}
	return b
}

// tell has a lane's credit said.
func (s *session) tell(l *lane) {
	s.mu.Lock()
	s.dirty[l] = struct{}{}
	s.mu.Unlock()
	signal(s.wakeControl)
}

// say has a message written that has been appended by add. A peer that reads nothing is cut rather than waited for.
func (s *session) say(add func([]byte) []byte) {
	s.mu.Lock()
	s.outbox = add(s.outbox)
	full := len(s.outbox) > outboxMost
	s.mu.Unlock()
	signal(s.wakeControl)
	if full {
		s.mesh.work.Go(func() { s.cut(violation("it reads no control messages")) })
	}
}

// readControl hears what the peer says.
func (s *session) readControl() {
	err := s.listen(&bucket{level: controlBurst, last: time.Now()})
	if err != nil {
		s.cut(err)
	}
}

// listen returns an error only for what a peer may not do.
func (s *session) listen(allowed *bucket) error {
	var buf [wire.HeadSize + wire.MaxBody]byte
	in := io.Reader(s.control)
	for {
		if _, err := io.ReadFull(in, buf[:wire.HeadSize]); err != nil {
			return s.unheard(err)
		}
		kind, size, err := wire.ParseHead(buf[:wire.HeadSize])
		if err != nil {
			return err
		}
		if !allowed.take(time.Now()) {
			return violation("more than %d control messages a second", controlRate)
		}
		body := buf[wire.HeadSize:][:size]
		if _, err := io.ReadFull(in, body); err != nil {
			return s.unheard(err)
		}
		if err := s.hear(kind, body); err != nil {
			return err
		}
	}
}

// unheard judges the end of the control stream, which lives as long as the connection.
func (s *session) unheard(err error) error {
	if s.conn.Context().Err() != nil || !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !isStreamError(err) {
		return nil
	}
	return violation("it has closed its control stream")
}

func (s *session) hear(kind wire.Kind, body []byte) error {
	switch kind {
	case wire.KindCredit:
		c, err := wire.ParseCredit(body)
		if err != nil {
			return err
		}
		return s.hearCredit(c)
	case wire.KindDropped:
		d, err := wire.ParseDropped(body)
		if err != nil {
			return err
		}
		return s.hearDropped(d)
	case wire.KindAbandon:
		a, err := wire.ParseAbandon(body)
		if err != nil {
			return err
		}
		return s.hearAbandon(a)
	case wire.KindBye:
		y, err := wire.ParseBye(body)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.bye, s.streams = true, y.Streams
		last := s.ended >= s.streams
		s.mu.Unlock()
		if last {
			s.close(codeBye, "")
		}
		return nil
	}
	return violation("a second HELLO")
}

// hearCredit remembers what a rank takes, whether or not its lane is open here.
func (s *session) hearCredit(c wire.Credit) error {
	if !s.owns(c.Rank) {
		return violation("credit for rank %d, which is not of node %d", c.Rank, s.peer.node)
	}
	key := laneRank{idOf(c.Lane), int(c.Rank)}
	s.mu.Lock()
	have := s.credits[key]
	fresh := have == nil || have.over
	if fresh {
		if len(s.credits) >= lanesMost*s.mesh.config.Ranks[s.peer.node] && !s.forget() {
			s.mu.Unlock()
			return violation("more than %d lanes for each rank", lanesMost)
		}
		have = &credit{}
		s.credits[key] = have
	}
	if c.From < have.from || c.Upto < have.upto {
		s.mu.Unlock()
		return violation("credit from %d up to %d after %d up to %d", c.From, c.Upto, have.from, have.upto)
	}
	have.from, have.upto = c.From, c.Upto
	for k, e := range s.endings { // a lane that is opened again
		if k.id == key.id {
			delete(e.left, c.Rank)
		}
	}
	s.mu.Unlock()
	if fresh {
		s.mesh.tellLeft(s, key.id)
	}
	signal(s.wakePush)
	for _, l := range *s.mesh.open.Load() {
		if l.key.id == key.id {
			l.config.Notify()
		}
	}
	return nil
}

// forget drops credit of lanes that were left. session.mu is held.
func (s *session) forget() bool {
	for key, c := range s.credits {
		if c.over {
			delete(s.credits, key)
			return true
		}
	}
	return false
}

// tellLeft tells a peer that begins to wait for samples of a lane which of our ranks have left it not long ago.
func (m *Mesh) tellLeft(s *session, id exchange.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range m.left {
		if key.id == id {
			s.sayLeft(key, func(int) uint64 { return 0 })
		}
	}
}

// sayLeft tells all ranks of the peer that one of ours has left a lane; next is the first ordinal that was not sent to a
// rank.
func (s *session) sayLeft(key laneRank, next func(rank int) uint64) {
	first := s.first()
	s.say(func(b []byte) []byte {
		for to := first; to < first+s.mesh.config.Ranks[s.peer.node]; to++ {
			b = wire.Abandon{Lane: laneOf(key.id), Rank: uint32(key.rank), To: uint32(to), Next: next(to)}.Append(b)
		}
		return b
	})
}

func (s *session) hearDropped(d wire.Dropped) error {
	if !s.ours(d.Rank) {
		return violation("samples dropped for rank %d, which is not of this node", d.Rank)
	}
	if l := s.mesh.lane(idOf(d.Lane), int(d.Rank)); l != nil {
		l.dropped(s, d.From, d.To)
	}
	return nil
}

// hearAbandon remembers that a rank has left, whether or not the lane is open here.
func (s *session) hearAbandon(a wire.Abandon) error {
	if !s.owns(a.Rank) || !s.ours(a.To) {
		return violation("rank %d leaves rank %d", a.Rank, a.To)
	}
	id := idOf(a.Lane)
	key := laneRank{id, int(a.To)}
	s.mu.Lock()
	if c := s.credits[laneRank{id, int(a.Rank)}]; c != nil {
		c.over = true
	}
	e := s.endings[key]
	if e == nil {
		if len(s.endings) >= lanesMost*s.mesh.config.Ranks[s.mesh.config.Node] {
			for old := range s.endings {
				delete(s.endings, old)
				break
			}
		}
		e = &ending{left: map[uint32]struct{}{}}
		s.endings[key] = e
	}
	e.left[a.Rank] = struct{}{}
	e.next = max(e.next, a.Next)
	s.mu.Unlock()
	if l := s.mesh.lane(id, int(a.To)); l != nil {
		l.leftBy(s)
	}
	for _, l := range *s.mesh.open.Load() {
		if l.key.id == id {
			l.giveUp(int(a.Rank))
		}
	}
	return nil
}

// forgetLane drops what is known of a lane that is closed here.
func (s *session) forgetLane(key laneRank) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.endings, key)
}

// over is the ordinal from which on nothing more comes from the peer to one of our ranks, if that is known.
func (s *session) over(key laneRank) (uint64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.endings[key]
	if e == nil || len(e.left) < s.mesh.config.Ranks[s.peer.node] {
		return 0, false
	}
	return e.next, true
}

// gone are the peer's ranks that have left a lane.
func (s *session) gone(key laneRank) (ranks []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.endings[key]; e != nil {
		for rank := range e.left {
			ranks = append(ranks, int(rank))
		}
	}
	return ranks
}

// creditOf is what a rank of the peer takes in a lane; false if it has not said.
func (s *session) creditOf(key laneRank) (credit, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.credits[key]; c != nil {
		return *c, true
	}
	return credit{}, false
}

// bucket bounds a rate.
type bucket struct {
	level float64
	last  time.Time
}

func (b *bucket) take(now time.Time) bool {
	b.level = min(b.level+now.Sub(b.last).Seconds()*controlRate, controlBurst)
	b.last = now
	b.level--
	return b.level >= 0
}
