package attach

import (
	"fmt"
	"time"

	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/node"
)

// asking is a client's wait for a batch. Guarded by server.mu.
type asking struct {
	number uint64
	since  time.Time // zero: it does not wait
}

// passKey is what the workers of one iteration have in common: the seed that torch gives a DataLoader's iteration, and
// how many iterations each worker (which may be persistent) has begun with it.
type passKey struct {
	base, nth uint64
}

// pass is one iteration over (the rest of) an epoch by the workers of one rank. Worker w of W gets batches w, w+W, …,
// which are assembled in order; one that another worker is to get waits for it in a slot.
type pass struct {
	server  *Server
	key     passKey
	trainer *trainer
	rank    *rank
	workers int
	birth   uint64 // when its workers were born, as awaits has it
	epoch   uint64
	start   int64
	batches int64
	made    chan struct{} // closed when there is a loader, or failure
	failure error

	// Below: guarded by server.mu.
	loader  *served
	clients map[*client]bool // attached now
	joined  map[int]bool     // workers that came
	told    map[int]bool     // workers that were told the end
	broken  bool             // one left before it had all of its batches
	next    uint64           // number of the batch that is assembled next
	ready   map[uint64]*loan
	busy    bool // somebody is in Acquire
	ended   bool // there is no batch `next`
	retired bool // the loader may work for another pass
	over    bool
	skipped int64         // samples that its clients left out
	dumped  bool          // a stall is in the log, and nothing has moved since
	changed chan struct{} // closed and renewed by announce
}

// awaits says whether a worker that begins belongs to this pass and has not come yet. The key alone does not tell: a
// program that sets the same seed before each epoch gives all of them the same. The workers of one iteration are born one
// after the other, those of the next after them, and births are counted: less the worker's number, they differ by less
// than the number of workers within an iteration, as long as that many other processes are not born in between.
func (p *pass) awaits(key passKey, worker, workers int, birth uint64) bool {
	apart := int64(birth - uint64(worker) - p.birth)
	return p.key == key && p.workers == workers && !p.joined[worker] && max(apart, -apart) < int64(workers)
}

// announce wakes those who wait for a batch. mu is held.
func (p *pass) announce() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// batch waits for a batch by its number in the pass and makes the client its holder.
func (p *pass) batch(c *client, number uint64) (l *loan, copied bool, err error) {
	s := p.server
	limit, press := time.NewTimer(s.timeout), time.NewTimer(s.timeout/4)
	defer limit.Stop()
	defer press.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		l, ok := p.ready[number]
		switch {
		case ok:
			return p.take(c, l), s.crowded(c, p), nil
		case p.over:
			return nil, false, errOver()
		case number < p.next:
			return nil, false, fault.New(fault.Invalid, "batch %d of the iteration was asked for before", number)
		case p.ended:
			return nil, false, fault.New(fault.EndOfEpoch, "the epoch has ended")
		case !p.busy && !p.loader.full:
			if err := p.assemble(-1); err != nil {
				return nil, false, err
			}
			continue
		}
		changed := p.changed
		s.mu.Unlock()
		var end error
		pressed := false
		select {
		case <-changed:
		case <-press.C:
			pressed = true
		case <-c.gone:
			end = errOver()
		case <-limit.C:
			end = p.stall(number)
		}
		s.mu.Lock()
		if end != nil {
			return nil, false, end
		}
		if pressed {
			s.reclaim(p.loader, true)
		}
	}
}

// prompt is batch without waiting: errLater if that takes some.
func (s *Server) prompt(c *client, number uint64) (l *loan, copied bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := c.pass
	if p == nil || p.loader == nil || p.over || p.ended {
		return nil, false, errLater
	}
	if number == p.next && !p.busy && !p.loader.full {
		if err := p.assemble(0); err != nil && fault.KindOf(err) != fault.TimedOut {
			return nil, false, err
		}
	}
	l, ok := p.ready[number]
	if !ok {
		return nil, false, errLater
	}
	return p.take(c, l), s.crowded(c, p), nil
}

// take makes a client the holder of a batch that was waiting for it. mu is held.
func (p *pass) take(c *client, l *loan) *loan {
	delete(p.ready, l.number)
	c.made = 0
	l.hold(c)
	return l
}

func errOver() error { return fault.New(fault.Canceled, "the iteration has ended") }

// stall says why a batch does not come.
func (p *pass) stall(number uint64) error {
	p.server.mu.Lock()
	full, slots := p.loader.full, p.slotsOut()
	p.server.mu.Unlock()
	if full {
		return fault.New(fault.TimedOut, "no batch came in time: batch %d waits for %s", number, slots)
	}
	return p.loader.Stall()
}

// slotsOut says where the slots are for which batches wait. mu is held.
func (p *pass) slotsOut() string {
	held, sent := 0, 0
	for _, l := range p.server.loans.all {
		if l != nil && l.slot != nil && l.loader == p.loader {
			if len(l.holders) > 0 {
				held++
			} else {
				sent++
			}
		}
	}
	return fmt.Sprintf("one of %d slots: %d are with worker processes or the trainer, %d are on their way to the trainer or wait for a "+
		"worker", p.loader.Slots(), held, sent)
}

// assemble takes the next batch from the loader. mu is held, but not while it waits.
func (p *pass) assemble(patience time.Duration) error {
	s, ld := p.server, p.loader
	p.busy = true
	freed := ld.freed
	s.mu.Unlock()
	var b node.Batch
	slot, err := ld.Acquire(&b, patience)
	s.mu.Lock()
	p.busy = false
	defer p.announce()
	if err == nil {
		if p.over {
			slot.Release()
			return errOver()
		}
		l := &loan{number: p.next, slot: slot, batch: b, arena: ld.arena, loader: ld, pass: p}
		s.loans.add(l)
		p.dumped = false
		p.ready[p.next] = l
		p.next++
		return nil
	}
	switch fault.KindOf(err) {
	case fault.EndOfEpoch:
		p.ended = true
		return nil
	case fault.Range:
		if ld.lent == 0 && freed == ld.freed {
			return fault.New(fault.Memory, "memory_limit leaves too little room for a batch: %v", err)
		}
		ld.full = !s.reclaim(ld, false) && freed == ld.freed
		return nil
	}
	return err
}

// end takes note that a worker was told the end. When all were, the loader is free for the next pass, while the last
// batches are on their way. mu is held.
func (p *pass) end(worker int) {
	p.told[worker] = true
	if len(p.told) == p.workers {
		p.retire()
	}
}

// leave takes note that a client of the pass is gone, or needs no more of it. mu is held.
func (p *pass) leave(c *client) {
	if !p.clients[c] {
		return
	}
	delete(p.clients, c)
	if !p.told[c.worker] {
		p.broken = true
	}
	if len(p.clients) == 0 && (p.broken || len(p.joined) == p.workers) {
		p.part()
	}
}

// part ends the pass: no client needs more of it. mu is held.
func (p *pass) part() {
	if p.over {
		return
	}
	p.over = true
	p.rank.prune()
	for _, l := range p.ready {
		p.server.free(l)
	}
	clear(p.ready)
	p.announce()
	p.retire()
}

// retire lets the loader go. mu is held.
func (p *pass) retire() {
	if p.loader == nil || p.retired {
		return
	}
	p.retired = true
	p.loader.pass, p.loader.full = nil, false
	if p.trainer.gone {
		p.server.discard(p.loader)
	} else {
		p.rank.free = append(p.rank.free, p.loader)
	}
}
