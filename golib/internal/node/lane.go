package node

import (
	"time"

	"github.com/redox-loader/redox/golib/internal/exchange"
	"github.com/redox-loader/redox/golib/internal/plan"
)

// lingerTime is how long a pass that was delivered whole goes on sending what slower nodes have not asked for yet.
const lingerTime = 10 * time.Second

// exchanged says whether samples cross between nodes. In stored order they do not: a chunk may be spread over the ranks
// of several nodes there, and each reads whole what it needs anything of (see ownership).
func (c *RunConfig) exchanged() bool {
	return len(c.World.Nodes) > 1 && c.Plan.Shuffled() && c.World.Exchange.Mode != plan.Off
}

// openLane makes a pass part of the exchange.
func (p *pass) openLane() error {
	r := p.run
	if r.cfg.Exchange == nil || !r.cfg.exchanged() {
		return nil
	}
	in, s := newIncoming(p, r.credit), newPusher(p)
	lane, err := r.cfg.Exchange.Open(exchange.Config{
		ID: exchange.ID{Epoch: p.epoch, Nth: r.countPass(p.epoch), From: p.from}, Rank: r.cfg.Rank, Ranks: r.cfg.World.Nodes,
		Credit: r.credit, Largest: int(r.largest), Notify: in.wake,
	})
	if err != nil {
		return err
	}
	in.lane, s.lane = lane, lane
	p.in, p.push = in, s
	return nil
}

// countPass numbers the passes over an epoch. All ranks make the same ones, so the numbers agree.
func (r *Run) countPass(epoch uint64) uint64 {
	n := r.passes[epoch]
	r.passes[epoch] = n + 1
	return n
}

// exchange begins to receive and to send.
func (p *pass) exchange() {
	if p.in == nil {
		return
	}
	in, s := p.in, p.push
	deal := func() *plan.Deal {
		d, _ := p.plan.Deal(p.run.cfg.World, p.from) // Start has dealt it before
		return d
	}
	p.routine.Go(func() { in.expectAhead(deal()) })
	s.routine.Go(func() { s.pushAhead(deal()) })
	s.routine.Go(s.relieve)
}

// finished says that all samples were given to the lane and have come back from it.
func (s *pusher) finished() bool { return s.walked.Load() && s.flying.Load() == 0 }

// linger lets a pass that was delivered whole go on sending for a while, beside the next one.
func (r *Run) linger(p *pass) {
	r.endLinger()
	r.lingering.Store(p)
	r.behind.Go(func() {
		p.push.outlast()
		p.shut()
		r.lingering.CompareAndSwap(p, nil)
	})
}

// endLinger ends what linger began.
func (r *Run) endLinger() {
	if p := r.lingering.Load(); p != nil {
		p.push.cancel()
	}
	r.behind.Wait()
}

// outlast waits until everything was sent, for a bounded time; not for long if the run is in want of memory.
func (s *pusher) outlast() {
	timer := time.NewTimer(lingerTime)
	defer timer.Stop()
	short := false
	for !s.finished() {
		if !short && s.pass.run.user.Blocked() != nil {
			short = true
			timer.Reset(mostGrace)
		}
		select {
		case <-s.landed:
		case <-s.want:
		case <-timer.C:
			return
		case <-s.ctx.Done():
			return
		}
	}
}

// wanting is told by the resident set that the run's reader has no memory.
func (r *Run) wanting() {
	p := r.current.Load()
	if p == nil {
		return
	}
	p.announce()
	if p.push != nil {
		p.push.poke()
	}
	if last := r.lingering.Load(); last != nil {
		wake(last.push.want)
	}
}

// wake tells who waits on a channel with room for one.
func wake(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
