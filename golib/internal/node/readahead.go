package node

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/redox-loader/redox/golib/internal/plan"
	"github.com/redox-loader/redox/golib/internal/resident"
)

// openings are the chunks of an epoch in the order in which they are needed, those that this process reads.
type openings struct {
	epoch uint64
	owns  ownership
	opens *plan.Opens // only the reading goroutine uses it
	again []plan.Open // given back (Run.shed), the first needed last. Guarded by run.mu
}

// giveBack keeps an opening to be taken again when it is its turn. run.mu is held.
func (o *openings) giveBack(open plan.Open) {
	i, _ := slices.BinarySearchFunc(o.again, open, func(a, b plan.Open) int { return cmp.Compare(b.Position, a.Position) })
	o.again = slices.Insert(o.again, i, open)
}

func (o *openings) next() (plan.Open, bool) {
	for {
		if open, ok := o.opens.Next(); !ok || o.owns.reads(open) {
			return open, ok
		}
	}
}

// early is what was read for the next epoch before it was asked for. Its fields are guarded by run.mu.
type early struct {
	openings
	took []took
	peek *plan.Open // taken from opens, but its chunk is not taken yet
}

type took struct {
	open   plan.Open
	chunk  *resident.Chunk
	landed bool // it was read for this, not in memory already
}

// drop gives it all back.
func (e *early) drop(r *Run) {
	for _, t := range e.took {
		r.user.Drop(t.chunk, r.nextUse(uint32(t.open.Chunk)))
	}
	e.took = nil
}

// readAhead takes the chunks of the pass in the order in which they are needed, as far ahead as limits allow, and
// then the first ones of the next epoch.
func (p *pass) readAhead(ahead *early) {
	r := p.run
	mine := openings{epoch: p.epoch, owns: p.owns}
	var peek *plan.Open
	if ahead != nil {
		mine, peek = ahead.openings, ahead.peek
	} else {
		ahead = &early{}
		mine.opens = p.plan.Opens(p.from)
	}
	r.mu.Lock()
	p.openings = &mine
	r.mu.Unlock()
	for _, t := range ahead.took {
		p.hold(t.open, t.chunk)
	}
	for more := true; ; {
		if more && peek == nil {
			open, ok := mine.next()
			if more = ok; ok {
				peek = &open
			} else {
				p.beginEarly()
			}
		}
		open, next := p.mayTake(&peek)
		if open == nil {
			return
		}
		var err error
		if next == nil {
			err = p.take(*open)
		} else {
			err = p.takeEarly(next, *open)
		}
		interrupted := err != nil && p.taking.Err() != nil && p.reading.Err() == nil
		p.shedding()
		if err != nil && !interrupted {
			p.readFailed(err)
			return
		}
	}
}

func (p *pass) take(open plan.Open) error {
	if r := p.run; len(r.cfg.World.Nodes) == 1 && r.counts.starves() && 2*r.cfg.Plan.Size() > int64(r.eng.index.Samples()) {
		r.eng.source.Around() // all that lies there will be wanted, and here
	}
	c, _, err := p.run.user.Take(p.taking, uint32(open.Chunk), open.Position)
	if err == nil {
		p.hold(open, c)
		return nil
	}
	p.run.mu.Lock()
	defer p.run.mu.Unlock()
	p.openings.giveBack(open)
	return err
}

// takeEarly takes a chunk for the next epoch, into the room that the end of this one leaves.
func (p *pass) takeEarly(e *early, open plan.Open) error {
	r := p.run
	c, read, err := r.user.Take(p.taking, uint32(open.Chunk), r.cfg.Plan.Size()+open.Position)
	r.mu.Lock()
	if err != nil {
		e.giveBack(open)
	} else {
		e.took = append(e.took, took{open, c, read})
	}
	r.mu.Unlock()
	if err == nil {
		r.shedLate()
	}
	return err
}

// beginEarly goes over to the next epoch.
func (p *pass) beginEarly() {
	r := p.run
	if r.cfg.Once {
		return
	}
	e := &early{openings: openings{epoch: p.epoch + 1, owns: newOwnership(r, p.epoch+1, 0)}}
	e.opens = r.epoch(p.epoch + 1).Opens(0)
	if open, ok := e.next(); ok {
		e.peek = &open
	}
	r.mu.Lock()
	if !p.draining {
		r.early = e
	}
	r.mu.Unlock()
}

// mayTake waits until a chunk may be read, and says which: peek, or one that was given back, or one of the next epoch;
// nil when the pass has ended. What jobs already made need is always read; beyond that a few chunks. Before the first
// batch is there, nothing shall compete with its chunks.
func (p *pass) mayTake(peek **plan.Open) (open *plan.Open, next *early) {
	p.run.mu.Lock()
	defer p.run.mu.Unlock()
	for p.reading.Err() == nil {
		if open, next = p.choose(peek); open != nil {
			p.taking, p.shedding = context.WithCancel(p.reading)
			return open, next
		}
		p.work.Wait()
	}
	return nil, nil
}

// choose is mayTake without waiting. run.mu is held.
func (p *pass) choose(peek **plan.Open) (open *plan.Open, next *early) {
	for len(p.ahead) > 0 && p.ahead[0].Position < p.need {
		p.ahead = p.ahead[1:]
	}
	limit := p.run.ahead
	if p.first {
		limit = leastAhead
	}
	early := p.run.early
	if p.draining {
		early = nil // that is another pass's by now
	}
	switch again := &p.openings.again; {
	case len(*again) > 0:
		if o := (*again)[len(*again)-1]; o.Position < p.need || len(p.ahead) < limit {
			*again = (*again)[:len(*again)-1]
			return &o, nil
		}
	case *peek != nil:
		if o := *peek; o.Position < p.need || len(p.ahead) < limit {
			*peek = nil
			return o, nil
		}
	case early != nil && len(early.took) < p.run.ahead:
		if o := early.pop(); o != nil {
			return o, early
		}
	}
	return nil, nil
}

// pop is the next opening of the next epoch.
func (e *early) pop() *plan.Open {
	if n := len(e.again); n > 0 {
		o := e.again[n-1]
		e.again = e.again[:n-1]
		return &o
	}
	o := e.peek
	e.peek = nil
	if o != nil {
		if open, ok := e.next(); ok {
			e.peek = &open
		}
	}
	return o
}

// shed drops chunks that were read ahead until the run holds no more than its share: another run has come. They are
// taken again when it is their turn, which is before the one that the reader waits for just now: were it to go on
// waiting, it could wait for ever.
func (r *Run) shed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pass != nil && r.pass.shedding != nil && r.user.Over() > 0 {
		r.pass.shedding()
	}
	for e := r.early; e != nil && len(e.took) > 0 && r.user.Over() > 0; {
		t := e.took[len(e.took)-1]
		e.took = e.took[:len(e.took)-1]
		e.giveBack(t.open)
		r.user.Drop(t.chunk, r.nextUse(uint32(t.open.Chunk)))
	}
	p := r.pass
	if p == nil {
		return
	}
	reach := p.need // jobs up to here have been made; their chunks are in use
	if n := len(p.queue); n > 0 {
		reach = max(reach, p.queue[n-1].end)
	}
	for n := len(p.ahead); n > 0 && p.ahead[n-1].Position >= reach && r.user.Over() > 0; n = len(p.ahead) {
		open := p.ahead[n-1]
		if h := p.held[open.Chunk].Load(); h != nil { // else other nodes got all of it
			left, ok := h.revoke()
			if !ok {
				p.push.overdrawn() // samples of it are lent to the lane
				return
			}
			if left > 0 { // else it is being given back just now
				p.held[open.Chunk].Store(nil)
				open.Left = left
				p.openings.giveBack(open)
				r.user.Drop(h.chunk, open.Position)
			}
		}
		p.ahead = p.ahead[:n-1]
	}
}

// hold makes a taken chunk known to those who assemble.
func (p *pass) hold(open plan.Open, c *resident.Chunk) {
	h := newHold(c, open.Left)
	p.run.mu.Lock()
	p.held[open.Chunk].Store(h)
	if open.Position >= p.need {
		i, _ := slices.BinarySearchFunc(p.ahead, open, func(a, b plan.Open) int { return cmp.Compare(a.Position, b.Position) })
		p.ahead = slices.Insert(p.ahead, i, open)
	}
	p.run.mu.Unlock()
	p.announce()
	p.run.shedLate()
}

// shedLate sheds what was taken while another run came: shed has not seen it.
func (r *Run) shedLate() {
	if r.user.Over() > 0 {
		r.shed()
	}
}

// announce wakes who waits for a chunk to be taken: it was, or there is no memory for it, or it failed.
func (p *pass) announce() {
	p.run.mu.Lock()
	defer p.run.mu.Unlock()
	p.wake()
}

// wake is announce when run.mu is held.
func (p *pass) wake() {
	if p.awaited > 0 {
		close(p.arrived)
		p.arrived = make(chan struct{})
		p.awaited = 0
	}
}

func (p *pass) readFailed(err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	p.run.mu.Lock()
	p.err = err
	p.awaited++
	p.run.mu.Unlock()
	p.announce()
}
