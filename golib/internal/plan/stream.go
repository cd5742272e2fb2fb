package plan

import (
	"math"

	"github.com/redox-loader/redox/golib/internal/perm"
)

// never is the step of what does not happen.
const never = math.MaxInt64

// stream is one partition on its way through an epoch: draw an open virtual chunk at random, take the next sample of
// the physical chunk in it. A virtual chunk takes its next physical chunk from the queue when it is drawn and empty, so
// chunks are opened in the order of the queue. When the queue is empty too, the virtual chunk closes and another one is
// drawn. Streams don't know of each other, so they can be advanced in parallel.
type stream struct {
	epoch *Epoch
	part  *part
	rand  perm.Rand
	step  int64     // samples taken so far
	grow  int64     // step at which the next virtual chunk opens, or never
	next  int       // number of that virtual chunk
	queue []ChunkID // physical chunks that are not opened yet
	open  []slot    // open virtual chunks
	keyed bool      // orders are wanted: the slots' are made when a chunk is opened
}

// slot is an open virtual chunk: 64 bytes, a line of the cache.
type slot struct {
	chunk ChunkID
	left  uint32 // samples of the chunk that are still to come; 0: the slot is empty
	order perm.Order
}

// newStreams returns the streams of an epoch at its beginning, in the order of their turns.
func newStreams(e *Epoch) []stream {
	streams := make([]stream, len(e.parts))
	slots := make([]slot, e.plan.window)
	for j := range streams {
		q := &e.parts[j]
		n := e.plan.slots(j)
		streams[j] = stream{
			epoch: e,
			part:  q,
			rand:  perm.New(perm.Seed("plan/draws", e.plan.seed, e.number, uint64(q.partition))),
			next:  j,
			queue: q.queue,
			open:  slots[:0:n],
		}
		slots = slots[n:]
		streams[j].widen()
	}
	return streams
}

// widen opens the virtual chunks that are due at the current step.
func (s *stream) widen() {
	p := s.epoch.plan
	for s.grow = never; s.next < p.window; s.next += p.partitions {
		if due := p.ramp(s.next) - s.part.start; due > s.step {
			s.grow = due
			return
		}
		s.open = append(s.open, slot{})
	}
}

// draw returns the slot that gives the next sample. The caller takes it: one less left, one step more.
// While a single virtual chunk is open no random number is drawn.
func (s *stream) draw() *slot {
	if s.step == s.grow {
		s.widen()
	}
	for {
		i := 0
		if len(s.open) > 1 {
			i = int(s.rand.Below(uint64(len(s.open))))
		}
		if v := &s.open[i]; v.left > 0 || s.refill(v) {
			return v
		}
		s.close(i)
	}
}

// refill opens the queue's next physical chunk in an empty slot; false if there is none.
func (s *stream) refill(v *slot) bool {
	if len(s.queue) == 0 {
		return false
	}
	v.chunk = s.queue[0]
	s.queue = s.queue[1:]
	v.left = s.epoch.plan.counts[v.chunk]
	if s.keyed {
		v.order = s.epoch.order(v.chunk)
	}
	return true
}

// close removes an empty slot for good; the last one takes its place.
func (s *stream) close(i int) {
	end := len(s.open) - 1
	s.open[i] = s.open[end]
	s.open = s.open[:end]
}

// skip takes n samples by draws alone.
func (s *stream) skip(n int64) {
	for end := s.step + n; s.step < end; {
		s.run(end - s.step)
	}
}

// run takes up to n samples by draws alone. It stops after the first sample of a chunk that it opened, and returns the
// chunk's slot, else nil. It draws what draw draws, but keeps the generator in a register while no slot is empty.
func (s *stream) run(n int64) *slot {
	for end := s.step + n; s.step < end; {
		if s.step == s.grow {
			s.widen()
		}
		stop := min(end, s.grow)
		if len(s.open) > 1 {
			s.runFull(stop)
		} else if v := &s.open[0]; v.left > 0 { // nothing to draw until the chunk ends or another virtual chunk opens
			taken := min(stop-s.step, int64(v.left))
			v.left -= uint32(taken)
			s.step += taken
		}
		if s.step == stop {
			continue
		}
		waiting := len(s.queue)
		v := s.draw()
		v.left--
		s.step++
		if len(s.queue) < waiting {
			return v
		}
	}
	return nil
}

// runFull takes samples until the step stop, or until an empty slot is about to be drawn.
func (s *stream) runFull(stop int64) {
	r, open, step := s.rand, s.open, s.step
	for step < stop {
		drawn := r
		v := &open[drawn.Below(uint64(len(open)))]
		if v.left == 0 {
			break // before the draw
		}
		r = drawn
		v.left--
		step++
	}
	s.rand, s.step = r, step
}

// key makes the orders of the open chunks, and from now on that of every chunk that is opened.
func (s *stream) key() {
	s.keyed = true
	for i := range s.open {
		if v := &s.open[i]; v.left > 0 {
			v.order = s.epoch.order(v.chunk)
		}
	}
}

// pick takes the next sample.
func (s *stream) pick() Pick {
	v := s.draw()
	p := s.epoch.plan
	k := p.counts[v.chunk] - v.left
	if p.shuffle {
		k = v.order.At(k)
	}
	if p.subset != nil {
		k = p.subset.Local(v.chunk, k)
	}
	v.left--
	s.step++
	return Pick{Chunk: v.chunk, Sample: k, Partition: s.part.partition, Last: v.left == 0}
}

// order returns the order of a chunk's samples in this epoch.
func (e *Epoch) order(c ChunkID) perm.Order {
	if !e.plan.shuffle {
		return perm.Order{}
	}
	return perm.NewOrder(perm.Derive(e.orderSeed, uint64(c)), e.plan.counts[c])
}
