package node

import (
	"context"
	"errors"

	"github.com/redox-loader/redox/golib/internal/plan"
	"github.com/redox-loader/redox/golib/internal/resident"
)

// early is what was read for the next epoch before it was asked for.
type early struct {
	epoch uint64
	opens *plan.Opens
	took  []took
	next  *plan.Open // taken from opens, but its chunk is not taken yet
}

type took struct {
	open   plan.Open
	chunk  *resident.Chunk
	landed bool // it was read for this, not in memory already
}

// following is the next opening whose chunk this process reads.
func (e *early) following(owns *ownership) (open plan.Open, ok bool) {
	if e.next != nil {
		open, e.next = *e.next, nil
		return open, true
	}
	for {
		if open, ok = e.opens.Next(); !ok || owns.reads(open) {
			return open, ok
		}
	}
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
	if ahead == nil {
		ahead = &early{opens: p.plan.Opens(p.from)}
	}
	for _, t := range ahead.took {
		p.hold(t.open, t.chunk)
	}
	for {
		open, ok := ahead.following(&p.owns)
		if !ok {
			break
		}
		if !p.mayTake(open.Position) {
			return
		}
		c, _, err := p.run.user.Take(p.ctx, uint32(open.Chunk), p.base+open.Position)
		if err != nil {
			p.readFailed(err)
			return
		}
		p.hold(open, c)
	}
	if !p.run.cfg.Once {
		p.readEarly()
	}
}

// readEarly reads the first chunks of the next epoch into the room that the end of this one leaves.
func (p *pass) readEarly() {
	r := p.run
	e := &early{epoch: p.epoch + 1, opens: r.cfg.Plan.Epoch(p.epoch + 1).Opens(0)}
	owns := newOwnership(r, e.epoch, 0)
	base := p.base + r.cfg.Plan.Size()
	r.mu.Lock()
	r.early = e
	r.mu.Unlock()
	for len(e.took) < aheadChunks {
		open, ok := e.following(&owns)
		if !ok {
			return
		}
		c, read, err := r.user.Take(p.ctx, uint32(open.Chunk), base+open.Position)
		if err != nil {
			e.next = &open
			return
		}
		r.mu.Lock()
		e.took = append(e.took, took{open, c, read})
		r.mu.Unlock()
	}
}

// mayTake waits until a chunk that is first needed at a position may be read; false: the pass has ended. What jobs
// already made need is always read; beyond that a few chunks. Before the first batch is there, nothing shall compete
// with its chunks.
func (p *pass) mayTake(position int64) bool {
	r := p.run
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if p.ctx.Err() != nil {
			return false
		}
		for len(p.ahead) > 0 && p.ahead[0] < p.need {
			p.ahead = p.ahead[1:]
		}
		limit := aheadChunks
		if p.first {
			limit = leastAhead
		}
		if position < p.need || len(p.ahead) < limit {
			if position >= p.need {
				p.ahead = append(p.ahead, position)
			}
			return true
		}
		p.work.Wait()
	}
}

// hold makes a taken chunk known to those who assemble.
func (p *pass) hold(open plan.Open, c *resident.Chunk) {
	h := &hold{chunk: c}
	h.left.Store(int32(open.Left))
	p.held[open.Chunk].Store(h)
	p.announce()
}

// announce wakes who waits for a chunk to be taken: it was, or there is no memory for it, or it failed.
func (p *pass) announce() {
	p.run.mu.Lock()
	defer p.run.mu.Unlock()
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

// consume counts n samples of a held chunk as used; the last one gives it back.
func (p *pass) consume(c plan.ChunkID, h *hold) {
	if h.left.Add(-1) == 0 {
		p.held[c].Store(nil)
		p.run.user.Drop(h.chunk, p.useAgain(c))
	}
}
