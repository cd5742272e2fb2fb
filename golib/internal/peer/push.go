package peer

import (
	"errors"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/valyala/bytebufferpool"

	"github.com/redox-loader/redox/golib/internal/exchange"
	"github.com/redox-loader/redox/golib/internal/wire"
)

// push sends what is queued for the ranks of the session's node, as far as they give credit. It is the only one who
// writes to the data streams of the session. A slow node keeps its own pusher waiting and no other.
func (s *session) push() {
	done := s.conn.Context().Done()
	var batch []exchange.Outgoing
	turn := 0
	for s.conn.Context().Err() == nil {
		w := s.pick(turn, batch[:0])
		batch, turn = w.batch, turn+1
		for _, given := range w.given {
			given(false)
		}
		if w.outlet != nil {
			s.write(w)
			continue
		}
		if len(w.given) > 0 {
			continue
		}
		var again <-chan time.Time
		if w.full {
			again = time.After(streamPause)
		}
		select {
		case <-s.wakePush:
		case <-again:
		case <-done:
		}
	}
}

// parcel is what a pusher does next.
type parcel struct {
	lane   *lane
	outlet *outlet
	fresh  bool // the stream has just been opened
	batch  []exchange.Outgoing
	given  []func(bool) // Done of what is not sent
	full   bool         // the peer allows no more streams now
}

// pick takes a batch from the first queue, in turn, from which something can be sent.
func (s *session) pick(turn int, batch []exchange.Outgoing) parcel {
	w := parcel{batch: batch}
	open := *s.mesh.open.Load()
	for i := range open {
		l := open[(turn+i)%len(open)]
		l.mu.Lock()
		found := s.pickFrom(l, &w)
		l.mu.Unlock()
		if found {
			break
		}
	}
	return w
}

// pickFrom takes a batch from one of a lane's queues. lane.mu is held.
func (s *session) pickFrom(l *lane, w *parcel) bool {
	if l.inflows[s.peer.node].session != s {
		return false // the lane has not met the session yet, or has parted with it
	}
	for _, o := range l.outlets {
		if o.node != s.peer.node || o.busy || o.dead {
			continue
		}
		c, known := s.creditOf(laneRank{l.key.id, o.rank})
		if !known {
			continue
		}
		if o.session != s {
			o.session, o.stream, o.said = s, nil, c.from
		}
		s.take(l, o, c, w)
		if len(w.batch) > 0 {
			w.lane, w.outlet, o.busy = l, o, true
			return true
		}
	}
	return false
}

// take takes a batch from a queue, and tells the receiver of samples that will not come. lane.mu is held.
func (s *session) take(l *lane, o *outlet, c credit, w *parcel) {
	s.sayDropped(l, o, min(o.gone, c.upto))
	bytes := 0
	for len(o.items()) > 0 && len(w.batch) < batchSamples && bytes < batchBytes {
		it := &o.items()[0]
		n := it.out.Ordinal
		switch {
		case n >= c.upto:
			return
		case n < c.from: // it is of no use any more
			before := len(w.given)
			w.given = it.drop(w.given)
			s.peer.counters.dropped.Add(int64(len(w.given) - before))
		case it.dropped():
			o.gone = max(o.gone, n+1)
			s.sayDroppedRange(l, o, n, n+1)
		default:
			if o.stream == nil && !s.openStream(o, w) {
				return
			}
			w.batch = append(w.batch, it.out)
			bytes += len(it.out.Data)
		}
		o.pop()
		o.said = max(o.said, n+1)
	}
}

// sayDropped tells of what was sent or dropped on an earlier connection, to a receiver that asks for it again.
func (s *session) sayDropped(l *lane, o *outlet, upto uint64) {
	if o.said < upto {
		s.sayDroppedRange(l, o, o.said, upto)
		o.said = upto
	}
}

func (s *session) sayDroppedRange(l *lane, o *outlet, from, to uint64) {
	s.say(func(b []byte) []byte {
		return wire.Dropped{Lane: laneOf(l.key.id), Rank: uint32(o.rank), From: from, To: to}.Append(b)
	})
}

// openStream opens the stream of a queue, if the peer allows.
func (s *session) openStream(o *outlet, w *parcel) bool {
	stream, err := s.conn.OpenUniStream()
	if err != nil {
		w.full = true
		return false
	}
	o.stream, w.fresh = stream, true
	s.mu.Lock()
	s.opened++
	s.mu.Unlock()
	return true
}

// write sends a batch and calls Done for each of its samples.
func (s *session) write(w parcel) {
	l, o := w.lane, w.outlet
	buf := bytebufferpool.Get()
	if w.fresh {
		buf.B = wire.Stream{Lane: laneOf(l.key.id), To: uint32(o.rank), By: uint32(l.key.rank)}.Append(buf.B)
	}
	var err error
	for _, out := range w.batch {
		if err == nil {
			err = writeSample(o.stream, buf, out)
		}
		if err == nil {
			s.peer.counters.samplesOut.Add(1)
			s.peer.counters.bytesOut.Add(int64(len(out.Data)))
		} else {
			s.peer.counters.dropped.Add(1)
		}
		out.Done(err == nil)
	}
	bytebufferpool.Put(buf)
	clear(w.batch)
	l.mu.Lock()
	o.busy = false
	if err != nil && isStreamError(err) {
		o.dead = true // the rank has left; its ABANDON is on its way
	}
	var given []func(bool)
	if o.dead {
		given = o.clear(given)
	}
	if l.closed && o.session == s {
		_ = o.stream.Close()
	}
	l.mu.Unlock()
	for _, done := range given {
		done(false)
	}
}

// writeSample writes a sample straight from where it lies. quic-go joins the head with what follows.
func writeSample(stream *quic.SendStream, buf *bytebufferpool.ByteBuffer, out exchange.Outgoing) error {
	buf.B = wire.Frame{Ordinal: out.Ordinal, Position: out.Position, Length: uint32(len(out.Data)), Prefix: out.Prefix,
		Raw: out.Raw, CRC: out.CRC}.Append(buf.B)
	_, err := stream.Write(buf.B)
	buf.Reset()
	if err == nil {
		_, err = stream.Write(out.Data)
	}
	return err
}

// endStreams ends the streams of a closed lane on which nobody is writing.
func (l *lane) endStreams() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.outlets {
		if o.stream != nil && !o.busy && o.session.conn.Context().Err() == nil {
			_ = o.stream.Close()
		}
	}
}

func isStreamError(err error) bool {
	var e *quic.StreamError
	return errors.As(err, &e)
}
