package node

import (
	"math"
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

// credit is how much of a run's memory is for other nodes' samples.
type credit struct {
	coming int   // incoming samples at once
	spare  int   // samples read by themselves ahead of being needed
	sample int64 // bytes of the largest
}

// leastCredit is what an exchange can work with, if slowly.
const leastCredit = 2

// mostCredit is what the fastest network needs.
const mostCredit = 1024

// goodCredit is how many bytes of incoming samples hide the delays of a network, where memory is no matter.
const goodCredit = 64 << 20

// bytes is the memory for all of them. Each goroutine that assembles has room for one sample more, read by itself.
func (c credit) bytes(cfg *RunConfig) int64 {
	if c.coming == 0 {
		return 0
	}
	return int64(c.coming+c.spare+cfg.workers()+1) * c.sample
}

func (r *Reader) credit(cfg *RunConfig, coming int) credit {
	if !cfg.exchanged() {
		return credit{}
	}
	return credit{coming, max(leastCredit, coming/4), r.largestStored(cfg.Plan)}
}

// wantedCredit is how many incoming samples a run can make use of: those of the batches on their way.
func (r *Reader) wantedCredit(cfg *RunConfig) int {
	if !cfg.exchanged() {
		return 0
	}
	batches := (cfg.Prefetch + 2) * crossing(cfg)
	return max(leastCredit, min(mostCredit, max(batches, int(min(mostCredit, goodCredit/max(1, r.largestStored(cfg.Plan)))))))
}

// crossing is how many samples of a rank's batch come from other nodes: few where samples stay at home, as far as the
// nodes have partitions enough; nearly all where they are exchanged at random.
func crossing(cfg *RunConfig) int {
	batch := cfg.World.BatchSize
	if x := cfg.World.Exchange; x.Mode == plan.Uniform || x.Fraction > 0 {
		return batch
	}
	homes := cfg.Plan.Homes(cfg.World.Nodes, 0)
	own := 0
	for _, home := range homes {
		if home == cfg.node() {
			own++
		}
	}
	share := float64(own) / float64(len(homes)) * float64(cfg.World.Ranks()) / float64(cfg.World.Nodes[cfg.node()])
	missing := int(math.Ceil(float64(batch) * max(0, 1-share)))
	return min(batch, missing+batch/16+8)
}

// largestStored bounds the size of a stored sample: its raw size, as what grows by compression is stored raw.
func (r *Reader) largestStored(p *plan.Plan) int64 {
	largest := uint64(0)
	for c := range r.index.Entries {
		if p.Count(plan.ChunkID(c)) > 0 {
			largest = max(largest, r.index.Entries[c].MaxRaw)
		}
	}
	return int64(largest)
}
