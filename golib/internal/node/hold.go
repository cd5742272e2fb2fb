package node

import (
	"sync/atomic"

	"github.com/redox-loader/redox/golib/internal/plan"
	"github.com/redox-loader/redox/golib/internal/resident"
)

// hold is a taken chunk that is not used up. One word counts why it is held, so that jobs, the pusher and the lanes
// that send from it need no lock: the samples that are not consumed (low half), and those of them that are lent to a
// lane (high half), whose memory must stay until the lane gives them back.
type hold struct {
	chunk *resident.Chunk
	count atomic.Uint64
}

const (
	lent     = 1 << 32
	consumed = ^uint64(0)      // added: one sample less
	returned = ^uint64(lent)   // added: one sample less, and one less that is lent
	closed   = uint64(1) << 63 // nothing more is lent
)

func newHold(c *resident.Chunk, left uint32) *hold {
	h := &hold{chunk: c}
	h.count.Store(uint64(left))
	return h
}

func parts(v uint64) (left, lentOut uint32) { return uint32(v), uint32(v >> 32 &^ (1 << 31)) }

// consume counts a sample as used. last: the chunk is used up. waiting: all that is left of it is lent.
func (h *hold) consume() (last, waiting bool) {
	left, out := parts(h.count.Add(consumed))
	return left == 0, left > 0 && left == out
}

// lend counts a sample as lent; false if the chunk was given back. waiting is as for consume.
func (h *hold) lend() (ok, waiting bool) {
	for {
		v := h.count.Load()
		if v&closed != 0 {
			return false, false
		}
		if h.count.CompareAndSwap(v, v+lent) {
			left, out := parts(v + lent)
			return true, left == out
		}
	}
}

// giveBack is the end of a sample's being lent, and counts it as used.
func (h *hold) giveBack() (last bool) {
	left, _ := parts(h.count.Add(returned))
	return left == 0
}

// revoke ends the hold if nothing is lent, and tells how many samples are left for another one. With none left, whoever
// used the last one is about to give the chunk back.
func (h *hold) revoke() (left uint32, ok bool) {
	for {
		v := h.count.Load()
		left, out := parts(v)
		if out > 0 {
			return 0, false
		}
		if left == 0 || h.count.CompareAndSwap(v, closed|v) {
			return left, true
		}
	}
}

// end ends the hold but for what is lent: the last sample that comes back ends that. last: nothing is, and the chunk is
// to be given back by the caller.
func (h *hold) end() (last bool) {
	for {
		v := h.count.Load()
		left, out := parts(v)
		if left == 0 {
			return false // whoever used the last one gives it back
		}
		if h.count.CompareAndSwap(v, closed|uint64(out)<<32|uint64(out)) {
			return out == 0
		}
	}
}

// consume counts a sample of a held chunk as used by this process; the last one gives the chunk back.
func (p *pass) consume(c plan.ChunkID, h *hold) {
	last, waiting := h.consume()
	if last {
		p.drop(c, h)
	}
	if waiting {
		p.push.waiting.Add(1)
	}
}

// drop gives a chunk back that is used up.
func (p *pass) drop(c plan.ChunkID, h *hold) {
	p.held[c].CompareAndSwap(h, nil)
	next := p.useAgain(c)
	if p.run.current.Load() != p { // it was lent beyond the end of its pass
		next = p.run.nextUse(uint32(c))
	}
	p.run.user.Drop(h.chunk, next)
}
