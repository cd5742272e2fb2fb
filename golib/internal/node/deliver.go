package node

import (
	"fmt"
	"time"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// Next fills the caller's buffers with the next batch. If they are too small it returns fault.Range, with all needs
// set, and nothing is consumed. At the end of the epoch it returns fault.EndOfEpoch. timeout < 0 is the run's own.
func (r *Run) Next(dst *Batch, timeout time.Duration) error {
	if len(dst.Fields) != len(r.rec.fields) {
		return fault.New(fault.Invalid, "the batch has %d fields, the loader %d", len(dst.Fields), len(r.rec.fields))
	}
	return r.call(timeout, dst, taken, func(p *pass, j *job, claimed bool, pat *patience) error {
		if claimed {
			err := p.deliverDirect(j, dst, pat)
			if err != nil {
				p.disclaim(j)
			}
			return err
		}
		s := j.slot
		if err := r.rec.copyBatch(dst, &s.batch); err != nil {
			return err
		}
		p.delivered(j, dst)
		s.free()
		return nil
	})
}

// Acquire lends the next batch, assembled ahead in the arena: dst's columns are set to memory that stays as it is until
// the slot is released. When the caller holds so many slots that there is none, it returns fault.Range with all needs
// set; Next then still works.
func (r *Run) Acquire(dst *Batch, timeout time.Duration) (*Slot, error) {
	if n := len(dst.Fields); n != 0 && n != len(r.rec.fields) {
		return nil, fault.New(fault.Invalid, "the batch has %d fields, the loader %d", n, len(r.rec.fields))
	}
	var s *Slot
	err := r.call(timeout, dst, homeless, func(p *pass, j *job, claimed bool, pat *patience) error {
		if claimed {
			defer p.disclaim(j)
			return p.needs(j, dst, pat)
		}
		s = j.slot
		fields := resize(dst.Fields, len(s.batch.Fields))
		copy(fields, s.batch.Fields)
		*dst = s.batch
		dst.Fields = fields
		r.mu.Lock()
		r.holders++
		r.mu.Unlock()
		p.delivered(j, dst)
		return nil
	})
	return s, err
}

// call delivers the next job when it is this call's turn. The job is either in its slot, or claimed: no worker has
// room for it, and the caller sees to it alone. Meanwhile its state is as said: taken, if the caller will have it, or
// homeless, so that no worker gives the room that it needs to the job after it.
func (r *Run) call(timeout time.Duration, dst *Batch, as state, deliver func(p *pass, j *job, claimed bool, pat *patience) error) error {
	pat := r.patience(timeout)
	defer pat.done()
	if err := pat.wait(r.turn); err != nil {
		return r.callError(err)
	}
	defer r.endTurn()
	r.mu.Lock()
	p, closed := r.pass, r.closed
	r.mu.Unlock()
	switch {
	case closed:
		return errClosed()
	case p == nil:
		return fault.New(fault.Internal, "node: no epoch was started")
	}
	j, claimed, err := p.nextJob(pat, as)
	switch {
	case err != nil:
	case j == nil:
		dst.N, dst.Epoch = 0, p.epoch
		return fault.New(fault.EndOfEpoch, "the epoch has ended")
	case !claimed && j.err != nil:
		err = j.err
	default:
		err = deliver(p, j, claimed, pat)
	}
	return r.callError(err)
}

// nextJob waits for the next job to be in its slot, unless it can be in none (claimed). Nil: the epoch has ended.
func (p *pass) nextJob(pat *patience, as state) (j *job, claimed bool, err error) {
	r := p.run
	r.mu.Lock()
	j = p.head()
	if j == nil {
		r.mu.Unlock()
		return nil, false, nil
	}
	if j.state == homeless && r.slots > 0 {
		j.state, j.done = fresh, make(chan struct{}) // room may have come back
		p.wake()
	}
	free := r.slots
	if r.busy == r.cfg.workers() {
		free = 0 // all of them may wait for what only this job gives up
	}
	claimed = j.claim(free, as)
	r.mu.Unlock()
	if claimed {
		return j, true, nil
	}
	if err := p.awaitJob(j, pat); err != nil {
		return nil, false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return j, j.claim(0, as), nil
}

// claim makes a job the caller's if no worker has it or will have it, so many slots being to be had: from then on no worker
// takes it. run.mu is held.
func (j *job) claim(slots int, as state) bool {
	if j.state == fresh && slots == 0 || j.state == homeless {
		j.state = as
		return true
	}
	return false
}

// disclaim gives a claimed job back to the workers.
func (p *pass) disclaim(j *job) {
	p.run.mu.Lock()
	defer p.run.mu.Unlock()
	j.state, j.done = fresh, make(chan struct{})
	p.work.Broadcast()
	p.wake()
}

// awaitJob waits until a job is assembled, and attributes the time.
func (p *pass) awaitJob(j *job, pat *patience) error {
	begin := time.Now()
	p.run.mu.Lock()
	done := j.done
	p.work.Broadcast()
	p.run.mu.Unlock()
	err := pat.wait(done)
	p.run.counts.waited(j, begin, time.Now())
	return err
}

// deliverDirect assembles a job into the caller's memory.
func (p *pass) deliverDirect(j *job, dst *Batch, pat *patience) error {
	r := p.run
	a := r.direct(p, pat)
	begin := time.Now()
	defer func() { r.counts.waited(j, begin, time.Now()) }()
	for {
		if err := a.measure(j); err != nil {
			return err
		}
		if err := r.rec.accept(dst, j); err != nil {
			return err
		}
		if err := a.gather(j, dst.Fields); err != errAgain {
			if err != nil {
				return err
			}
			break
		}
	}
	copy(dst.Index, j.index[:j.n])
	dst.N, dst.Epoch, dst.Step, dst.Flags = j.n, p.epoch, j.step, j.flags()
	r.mu.Lock()
	p.assembled()
	r.mu.Unlock()
	p.delivered(j, dst)
	return nil
}

// needs tells the caller what the next batch needs.
func (p *pass) needs(j *job, dst *Batch, pat *patience) error {
	a := p.run.direct(p, pat)
	if err := a.measure(j); err != nil {
		return err
	}
	dst.Fields = resize(dst.Fields, len(p.run.rec.fields))
	p.run.rec.setNeeds(dst, j)
	return fault.New(fault.Range, "all %d batches of this loader's memory are in use: release one, or take this one into memory of "+
		"your own", p.run.cfg.Prefetch+1)
}

// delivered takes a job off the queue: the caller has it.
func (p *pass) delivered(j *job, b *Batch) {
	r := p.run
	r.counts.delivered(j, b)
	r.mu.Lock()
	defer r.mu.Unlock()
	p.queue = append(p.queue[:0], p.queue[1:]...)
	r.position = j.end
	r.spare = append(r.spare, j)
	j.slot = nil
	p.work.Broadcast()
	p.wake()
}

func (j *job) flags() uint32 {
	if j.bads > 0 {
		return Skipped
	}
	return 0
}

// Stall is the failure of a wait that took too long: what the next batch waits for.
func (r *Run) Stall() error {
	text := "no batch came in time"
	waits, chunk := r.waits()
	if waits == "" {
		waits = r.idle()
	}
	if waits != "" {
		text += ": " + waits
	}
	if n, oldest := r.eng.queue.InFlight(); n > 0 {
		text += fmt.Sprintf("; %d reads in flight, the oldest for %.1f s", n, time.Since(oldest).Seconds())
	}
	err := fault.New(fault.TimedOut, "%s", text)
	if chunk >= 0 {
		err.At(int64(r.eng.index.Entries[chunk].Shard), chunk, -1)
	}
	return err
}
