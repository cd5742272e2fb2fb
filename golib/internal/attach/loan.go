package attach

import (
	"slices"

	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/node"
)

// loan is a batch in a slot from its assembly until nobody needs it. A process that has views of it *holds* it. One that
// pickled it for another also gave away *tickets*, one for each tensor in the pickle: the receiver takes them in when it
// unpickles, perhaps much later, perhaps after the sender has dropped its views. The slot is free when nobody holds it
// and no ticket is out. Tickets of an iteration that was left in the middle are never taken in; those slots are taken
// back when others need them. All fields are guarded by server.mu.
type loan struct {
	id, generation uint32
	number         uint64     // of the batch in its pass
	slot           *node.Slot // nil: it is a result
	result         *node.Result
	batch          node.Batch
	arena          uint64
	loader         *served
	pass           *pass
	reading        *reading // that made the result; nil: a client makes it
	maker          *client  // that asked for it, if no pass did
	holders        []*client
	tickets        int  // given away and not yet taken in; below 0 while the giver has not told
	orphan         bool // a holder died: it may have given tickets away
}

// served is a loader with what is lent of it.
type served struct {
	Loader
	rank   int
	ahead  int
	arena  uint64
	lent   int   // loans
	freed  int64 // loans that ended, ever
	full   bool  // Acquire found no free slot, and none came free since
	pass   *pass // that it works for, or nil
	closed bool
}

// loans finds loans by their number; a number is used again, with another generation.
type loans struct {
	all  []*loan
	free []uint32
	used []uint32 // generations
}

func (t *loans) add(l *loan) {
	if n := len(t.free); n > 0 {
		l.id, t.free = t.free[n-1], t.free[:n-1]
	} else {
		l.id = uint32(len(t.all))
		t.all, t.used = append(t.all, nil), append(t.used, 0)
	}
	t.used[l.id]++
	l.generation = t.used[l.id]
	t.all[l.id] = l
	if l.slot != nil {
		l.loader.lent++
	}
}

func (t *loans) find(id, generation uint32) *loan {
	if int(id) >= len(t.all) || t.all[id] == nil || t.used[id] != generation {
		return nil
	}
	return t.all[id]
}

// settle frees a loan that nobody needs. mu is held.
func (s *Server) settle(l *loan) {
	if len(l.holders) == 0 && !l.orphan && l.tickets == 0 {
		s.free(l)
	}
}

// reclaim takes back slots of passes that are over and that nobody holds: those for which tickets are out, though they
// will never come. From passes that were left in the middle; or, when nothing else helps, from all. mu is held.
func (s *Server) reclaim(ld *served, all bool) (any bool) {
	for _, l := range s.loans.all {
		if l != nil && l.loader == ld && len(l.holders) == 0 && l.pass.over && (all || l.pass.broken) {
			s.free(l)
			any = true
		}
	}
	return any
}

// free makes a loan's slot free. mu is held.
func (s *Server) free(l *loan) {
	s.loans.all[l.id] = nil
	s.loans.free = append(s.loans.free, l.id)
	if l.result != nil {
		l.result.Release()
		if l.reading != nil {
			l.reading.announce()
		}
		return
	}
	l.slot.Release()
	l.loader.lent--
	l.loader.freed++
	l.loader.full = false
	if p := l.loader.pass; p != nil {
		p.dumped = false
		p.announce()
	}
}

// hold makes a client a holder. mu is held.
func (l *loan) hold(c *client) { l.holders = append(l.holders, c) }

// drop ends one hold of a client; false: it had none. mu is held.
func (l *loan) drop(c *client) bool {
	i := slices.Index(l.holders, c)
	if i >= 0 {
		l.holders = slices.Delete(l.holders, i, i+1)
	}
	return i >= 0
}

// release handles RELEASE: a client has no view of a batch any more; on balance it gave away so many tickets.
func (s *Server) release(c *client, id, generation uint32, tickets int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.loans.find(id, generation); l != nil && l.drop(c) {
		l.tickets += tickets
		s.settle(l)
	}
}

// claim handles CLAIM: a process has unpickled a reference to a batch. copied: it must copy the batch and give it back,
// because those who keep batches have as many slots as the others can spare.
func (s *Server) claim(c *client, id, generation uint32) (l *loan, copied bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l = s.loans.find(id, generation)
	if l == nil {
		return nil, false, fault.New(fault.Canceled, "a batch came too late: the iteration that it belongs to has ended")
	}
	if l.result != nil {
		l.hold(c)
		return l, l.reading != nil && s.keeps(l), nil
	}
	kept := 1
	for _, other := range s.loans.all {
		if other != nil && other != l && other.slot != nil && other.loader == l.loader && other.kept() {
			kept++
		}
	}
	l.hold(c)
	return l, kept > l.loader.Slots()-l.pass.workers-1, nil
}

// places is where the batch's columns lie, and where its index does.
func (l *loan) places() (columns []node.Place, index uint64) {
	if l.slot != nil {
		return l.slot.Places()
	}
	return l.result.Places()
}

// of says whether a rank's pass, or a client that reads for it, has the batch. mu is held.
func (l *loan) of(t *trainer, r *rank) bool {
	if l.pass != nil {
		return l.pass.rank == r
	}
	return l.maker.trainer == t && l.maker.rank == r.number
}

// kept says whether somebody holds the batch who is not the worker that it was assembled for.
func (l *loan) kept() bool {
	return slices.ContainsFunc(l.holders, func(c *client) bool { return c.pass != l.pass || l.maker != nil && c != l.maker })
}

// crowded says whether a client that was given one more batch must copy it and give it back: the clients of a pass may hold
// all slots but one, which keeps the batches moving, and each of them an equal part, or one. mu is held.
func (s *Server) crowded(c *client, p *pass) bool {
	slots, mine, all := p.loader.Slots(), 0, 0
	for _, l := range s.loans.all {
		if l == nil || l.slot == nil || l.loader != p.loader || len(l.holders) == 0 {
			continue
		}
		all++
		if slices.Contains(l.holders, c) {
			mine++
		}
	}
	return all > slots-1 || mine > max(1, (slots-1)/p.workers)
}

// allocate handles ALLOCATE: memory for a tensor that a worker makes of transformed samples, so that it crosses as a
// reference too. Of each batch that the workers make at once, in torch's queues and with the trainer, there may be one.
func (s *Server) allocate(c *client, size int64) (*loan, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := c.pass
	if p == nil && c.reads > 0 && size > 0 {
		return s.allocateExact(c, size)
	}
	if p == nil || p.over || p.retired || p.loader == nil || size < 1 {
		return nil, errOver()
	}
	c.made += size
	pool := c.made * int64(slotsAhead(p.workers))
	result := p.loader.NewResult(size, pool)
	if result == nil && s.reclaim(p.loader, false) {
		result = p.loader.NewResult(size, pool)
	}
	if result == nil {
		return nil, errNoRoom(size)
	}
	l := &loan{result: result, arena: p.loader.arena, loader: p.loader, pass: p}
	l.batch.Epoch = p.epoch
	s.loans.add(l)
	l.hold(c)
	return l, nil
}
