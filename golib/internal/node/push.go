package node

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redox-loader/redox/golib/internal/exchange"
	"github.com/redox-loader/redox/golib/internal/plan"
)

// pusher sends other nodes what they get of this node's chunks. A cursor of its own walks through the plan as far ahead
// of the jobs as chunks have landed. It waits for nothing else, and nobody waits for it: when the reader needs memory
// that only unsent samples hold, they are given up (relieve).
type pusher struct {
	pass  *pass
	lane  exchange.Lane
	ranks []int // of other nodes, that this one of the node's ranks serves

	waiting atomic.Int32  // chunks of which all that is left is lent to the lane
	flying  atomic.Int64  // samples that are lent to it
	over    atomic.Bool   // the run holds more than its share, and only what is lent to the lane can go
	poked   chan struct{} // the reader may be in want of memory
	landed  chan struct{} // a sample came back
	want    chan struct{} // while the pass lingers: the reader of the next one is in want of memory
	walked  atomic.Bool   // all was given to the lane

	ctx     context.Context // of the pass, and a while longer if it was delivered whole (linger)
	cancel  context.CancelFunc
	routine sync.WaitGroup
}

// newPusher finds the ranks to serve: of several ranks on a node each serves every so manyth.
func newPusher(p *pass) *pusher {
	s := &pusher{pass: p, poked: make(chan struct{}, 1), landed: make(chan struct{}, 1), want: make(chan struct{}, 1)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	rank := 0
	own, first := 0, 0
	for node, n := range p.run.cfg.World.Nodes {
		if uint16(node) == p.owns.node {
			own, first = n, rank
		}
		rank += n
	}
	for r := range rank {
		if (r < first || r >= first+own) && r%own == p.run.cfg.Rank-first {
			s.ranks = append(s.ranks, r)
		}
	}
	return s
}

// target is who gets a sample of a global batch.
type target struct {
	rank    int32 // index into pusher.ranks, or -1
	ordinal uint64
}

// pushAhead gives the lane all that is to be sent.
func (s *pusher) pushAhead(deal *plan.Deal) {
	var targets []target
	next := make([]uint64, len(s.ranks))
	for {
		b, ok := deal.Next()
		if !ok {
			s.walked.Store(true)
			wake(s.landed)
			return
		}
		targets = resize(targets, len(b.Picks))
		s.aim(b, targets, next)
		for at := range b.Picks {
			if targets[at].rank < 0 {
				continue
			}
			h := s.await(b.Picks[at].Chunk)
			if h == nil {
				return
			}
			s.send(h, &b.Picks[at], targets[at], b.First+int64(at))
		}
	}
}

// aim finds out who gets what of a global batch. The ordinals of a rank count all that comes to it from other nodes, in
// the order of positions; what is not of this node's chunks has a rank of -1.
func (s *pusher) aim(b *plan.GlobalBatch, targets []target, next []uint64) {
	for at := range targets {
		targets[at].rank = -1
	}
	homes := s.pass.owns.homes
	for i, rank := range s.ranks {
		home := nodeOf(s.pass.run.cfg.World.Nodes, rank)
		for _, it := range b.Ranks[rank] {
			if !it.Pad && homes[b.Picks[it.Pos].Partition] != home {
				targets[it.Pos].rank = int32(i)
			}
		}
	}
	for at := range targets {
		t := &targets[at]
		if t.rank < 0 {
			continue
		}
		t.ordinal = next[t.rank]
		next[t.rank]++
		if homes[b.Picks[at].Partition] != s.pass.owns.node {
			t.rank = -1 // a third node sends it
		}
	}
}

// await waits until a chunk has landed and a sample of it is lent to the lane; nil if the pass ends.
func (s *pusher) await(c plan.ChunkID) *hold {
	p := s.pass
	for {
		var ready <-chan struct{}
		if h := p.held[c].Load(); h == nil {
			arrived, err := p.expect(c)
			if err != nil {
				return nil
			}
			ready = arrived
		} else if !h.chunk.Ready() {
			ready = h.chunk.Done()
		} else if ok, waiting := h.lend(); ok {
			if waiting {
				s.waiting.Add(1)
			}
			s.flying.Add(1)
			return h
		} else if p.held[c].Load() == h {
			continue // it is being given back just now
		}
		if ready == nil {
			continue
		}
		select {
		case <-ready:
		case <-s.ctx.Done():
			return nil
		}
	}
}

// send gives a sample to the lane, unless it is corrupt: then the other node's own reading shall find that out.
func (s *pusher) send(h *hold, k *plan.Pick, t target, position int64) {
	p, c, view := s.pass, k.Chunk, h.chunk.View()
	to := s.ranks[t.rank]
	if h.chunk.Err() != nil || h.chunk.Damaged() && view.Check(int(k.Sample)) != nil {
		s.lane.Skip(to, t.ordinal)
		s.settle(c, h)
		return
	}
	data, prefix, raw, sum := view.Whole(int(k.Sample))
	s.lane.Send(exchange.Outgoing{
		To: to, Ordinal: t.ordinal, Position: position,
		Sample: exchange.Sample{Data: data, Prefix: uint32(prefix), Raw: raw, CRC: sum},
		Done: func(sent bool) {
			if sent {
				p.run.counts.peerOut.Add(int64(len(data)))
			}
			s.settle(c, h)
		},
	})
	s.pokeIfBlocked()
}

// settle counts a sample off its chunk that the lane has given back.
func (s *pusher) settle(c plan.ChunkID, h *hold) {
	if h.giveBack() {
		s.waiting.Add(-1)
		s.pass.drop(c, h)
	}
	s.flying.Add(-1)
	wake(s.landed)
}

// overdrawn is told that the run has to give up chunks of which samples are lent to the lane.
func (s *pusher) overdrawn() {
	s.over.Store(true)
	s.poke()
}

// poke tells that the reader has no memory, or that the jobs have moved while it has none.
func (s *pusher) poke() { wake(s.poked) }

// pokeIfBlocked pokes if what is lent could help a reader in want of memory.
func (s *pusher) pokeIfBlocked() {
	if s.pass.run.user.Blocked() != nil && s.waiting.Load() > 0 {
		s.poke()
	}
}

// mostGrace is how long the reader waits for memory that only unsent samples hold. What is queued may be under way, so
// it is worth a moment; a receiver that does not take it is not. So the grace is halved each time that it was of no use,
// and comes back when it was.
const mostGrace = 20 * time.Millisecond

// relieve gives up samples that were not sent when the reader is in want of the memory: those at positions that the own
// jobs have passed, in chunks of which nothing else is needed. Their receivers read them from storage.
func (s *pusher) relieve() {
	grace := mostGrace
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.poked:
		case <-s.ctx.Done():
			return
		}
		if s.over.Swap(false) {
			s.lane.Shed(math.MaxInt64)
			s.pass.run.shed()
			if s.over.Load() && !pause(s.ctx, timer, mostGrace) { // what is being written just now
				return
			}
			continue
		}
		blocked := s.pass.run.user.Blocked()
		if blocked == nil || s.waiting.Load() == 0 {
			continue
		}
		if left := grace - time.Since(blocked.Since); left > 0 {
			if !pause(s.ctx, timer, left) {
				return
			}
			if s.pass.run.user.Blocked() != blocked {
				grace = min(2*grace+time.Millisecond, mostGrace)
				s.pokeIfBlocked()
				continue
			}
		}
		before := s.flying.Load()
		s.lane.Shed(s.pass.position())
		if s.flying.Load() < before {
			if grace /= 2; grace < time.Millisecond {
				grace = 0
			}
		}
	}
}

// pause waits; false if the context ends before.
func pause(ctx context.Context, timer *time.Timer, d time.Duration) bool {
	timer.Reset(d)
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// position is up to where the jobs have used their samples: nobody of this run looks at what is before it again.
func (p *pass) position() int64 {
	r := p.run
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.position
	for _, j := range p.queue {
		if j.state != finished {
			return max(at, j.passed.Load())
		}
		at = j.end
	}
	return at
}

// nodeOf is the node of a rank.
func nodeOf(nodes []int, rank int) uint16 {
	for i, n := range nodes {
		if rank < n {
			return uint16(i)
		}
		rank -= n
	}
	return 0
}
