package peer

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"

	"github.com/quic-go/quic-go"

	"github.com/redox-loader/redox/golib/internal/exchange"
	"github.com/redox-loader/redox/golib/internal/wire"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// codeLeft is what a stream is given up with whose lane has ended here.
const codeLeft quic.StreamErrorCode = 1

// acceptStreams reads the peer's data streams.
func (s *session) acceptStreams(work *sync.WaitGroup) {
	for {
		stream, err := s.conn.AcceptUniStream(s.conn.Context())
		if err != nil {
			return
		}
		work.Go(func() {
			in := &inlet{session: s, stream: stream, buf: pieces.Get().(*[pieceSize]byte)}
			err := in.serve()
			pieces.Put(in.buf)
			if err != nil {
				s.cut(err)
				return
			}
			s.streamEnded()
		})
	}
}

// pieces are the buffers of open streams.
var pieces = sync.Pool{New: func() any { return new([pieceSize]byte) }}

// inlet reads one data stream. Nothing that it does waits for anything but the stream, so that the windows of the
// connection never fill because of one lane.
type inlet struct {
	session *session
	stream  *quic.ReceiveStream
	head    wire.Stream
	lane    *lane
	buf     *[pieceSize]byte
	r, w    int // what is read but not used: buf[r:w]
	past    uint64
}

// serve reads the stream to its end. It returns an error only for what a peer may not do.
func (in *inlet) serve() error {
	b, err := in.need(wire.StreamSize)
	if err != nil {
		return in.ending(err)
	}
	if in.head, err = wire.ParseStream(b); err != nil {
		return err
	}
	s := in.session
	if !s.ours(in.head.To) || !s.owns(in.head.By) {
		return violation("a stream from rank %d to rank %d", in.head.By, in.head.To)
	}
	if err := in.enter(); err != nil || in.lane == nil {
		in.cancel()
		return err
	}
	defer in.leave()
	for {
		b, err := in.need(wire.FrameSize)
		if err != nil {
			return in.ending(err)
		}
		f, err := wire.ParseFrame(b)
		if err != nil {
			return err
		}
		if err := in.sample(f); err != nil {
			return err
		}
	}
}

// enter finds the lane. One that was closed not long ago is no error: the peer does not know yet.
func (in *inlet) enter() error {
	m := in.session.mesh
	key := laneRank{idOf(in.head.Lane), int(in.head.To)}
	m.mu.Lock()
	l := m.lanes[key]
	if l == nil {
		defer m.mu.Unlock()
		for _, k := range m.left {
			if k == key {
				return nil
			}
		}
		return violation("a stream for lane %v, which was never open", key.id)
	}
	m.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	for other := range l.inlets {
		if other.session == in.session && other.head == in.head {
			return violation("two streams from rank %d in lane %v", in.head.By, key.id)
		}
	}
	l.inlets[in] = struct{}{}
	in.lane = l
	return nil
}

func (in *inlet) leave() {
	in.lane.mu.Lock()
	defer in.lane.mu.Unlock()
	delete(in.lane.inlets, in)
}

// cancel has the peer stop.
func (in *inlet) cancel() { in.stream.CancelRead(codeLeft) }

// ending judges the end of a stream: at a frame's border, with the connection or because one of us gave it up it is
// as it should be.
func (in *inlet) ending(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) && in.session.conn.Context().Err() == nil {
		return violation("a stream ends in the middle")
	}
	return nil
}

// need returns the next n bytes, at most pieceSize; io.EOF if the stream ends before the first of them.
func (in *inlet) need(n int) ([]byte, error) {
	if err := in.fill(n); err != nil {
		return nil, err
	}
	b := in.buf[in.r : in.r+n]
	in.r += n
	return b, nil
}

// fill reads until at least n bytes are there.
func (in *inlet) fill(n int) error {
	if in.r+n > len(in.buf) || in.r == in.w {
		in.w = copy(in.buf[:], in.buf[in.r:in.w])
		in.r = 0
	}
	for in.w-in.r < n {
		got, err := in.stream.Read(in.buf[in.w:])
		in.w += got
		if err != nil && in.w-in.r < n {
			if errors.Is(err, io.EOF) && in.w > in.r {
				return io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// sample reads a frame's bytes into the ring, if they are wanted.
func (in *inlet) sample(f wire.Frame) error {
	l, c := in.lane, &in.session.peer.counters
	wanted, err := l.begin(in, f)
	if err != nil {
		return err
	}
	sum := uint32(0)
	for at := 0; at < int(f.Length); {
		if err := in.fill(1); err != nil {
			l.broken(in, f.Ordinal)
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return in.ending(err)
		}
		piece := in.buf[in.r:min(in.w, in.r+int(f.Length)-at)]
		in.r += len(piece)
		if wanted {
			sum = crc32.Update(sum, castagnoli, piece)
			wanted = l.put(in, f.Ordinal, at, piece)
		}
		at += len(piece)
	}
	c.bytesIn.Add(int64(f.Length))
	c.samplesIn.Add(1)
	if !wanted || !l.come(in, f, sum) {
		c.useless.Add(1)
	}
	return nil
}

// begin says whether a sample is wanted, and gives its place in the ring to the stream.
func (l *lane) begin(in *inlet, f wire.Frame) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	node := in.session.peer.node
	switch {
	case int64(f.Length) > int64(l.config.Largest):
		return false, violation("a sample of %d bytes, where the largest has %d", f.Length, l.config.Largest)
	case f.Ordinal >= l.next:
		return false, violation("sample %d, beyond the credit of %d", f.Ordinal, l.next)
	case f.Ordinal < in.past:
		return false, violation("sample %d after sample %d", f.Ordinal, in.past-1)
	}
	in.past = f.Ordinal + 1
	if f.Ordinal < l.done || l.closed {
		return false, nil
	}
	s := l.slot(f.Ordinal)
	if s.owner != node || s.position != f.Position {
		return false, violation("sample %d at position %d, which is the one at %d of node %d", f.Ordinal, f.Position,
			s.position, s.owner)
	}
	if s.status != exchange.Coming || s.filler != nil {
		return false, nil
	}
	s.filler = in
	return true, nil
}

// put copies a piece into the ring, unless the sample was given up meanwhile: then its place may be another's.
func (l *lane) put(in *inlet, ordinal uint64, at int, piece []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.filling(in, ordinal) {
		return false
	}
	copy(l.ring.at(ordinal)[at:], piece)
	return true
}

// filling is whether the stream still has the ordinal's place. lane.mu is held.
func (l *lane) filling(in *inlet, ordinal uint64) bool {
	return !l.closed && ordinal >= l.done && l.slot(ordinal).filler == in
}

// come makes a sample Here if it is what its checksum says.
func (l *lane) come(in *inlet, f wire.Frame, sum uint32) bool {
	l.mu.Lock()
	here := l.filling(in, f.Ordinal)
	if here {
		s := l.slot(f.Ordinal)
		s.filler = nil
		if sum != f.CRC {
			s.status = exchange.Lost
		} else {
			s.status = exchange.Here
			s.sample = exchange.Sample{Data: l.ring.at(f.Ordinal)[:f.Length:f.Length], Prefix: f.Prefix, Raw: f.Raw, CRC: f.CRC}
		}
	}
	l.mu.Unlock()
	if !here {
		return false
	}
	if sum != f.CRC {
		l.mesh.corrupt(in.session.peer, f)
	}
	l.config.Notify()
	return sum == f.CRC
}

// broken gives up a sample whose stream has ended in the middle of it.
func (l *lane) broken(in *inlet, ordinal uint64) {
	l.mu.Lock()
	lost := l.filling(in, ordinal)
	if lost {
		s := l.slot(ordinal)
		s.status, s.filler = exchange.Lost, nil
	}
	l.mu.Unlock()
	if lost {
		l.config.Notify()
	}
}

// corrupt tells, once for each node, that it sends what is not what it says.
func (m *Mesh) corrupt(p *peer, f wire.Frame) {
	const word = "a sample came with a wrong checksum"
	m.mu.Lock()
	_, before := p.told[word]
	p.told[word] = struct{}{}
	m.mu.Unlock()
	if !before {
		m.config.Log("warning", fmt.Sprintf("%s from node %d (position %d): is its memory sound? It is read from storage",
			word, p.node, f.Position))
	}
}
