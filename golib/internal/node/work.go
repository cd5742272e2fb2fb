package node

import (
	"errors"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// assembleAhead is a worker: it takes jobs in order whenever a slot is free.
func (p *pass) assembleAhead() {
	r := p.run
	a := r.assembler(p, &patience{stop: p.ctx.Done(), limit: -1})
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		j := p.nextFresh()
		if p.ctx.Err() != nil {
			return
		}
		if j == nil {
			p.work.Wait()
			continue
		}
		j.state = taken
		r.slots--
		r.busy++
		r.mu.Unlock()
		err := p.assembleSlot(a, j)
		r.mu.Lock()
		r.busy--
		p.settle(j, err)
	}
}

// nextFresh is the next job that a worker may begin: with a slot free for it. mu is held.
func (p *pass) nextFresh() *job {
	if p.run.slots == 0 {
		return nil
	}
	for _, j := range p.queue {
		switch j.state {
		case fresh:
			return j
		case homeless:
			return nil // what comes after it would only take more of the room that it lacks
		}
	}
	if p.makeJob() {
		return p.queue[len(p.queue)-1]
	}
	return nil
}

// assembleSlot measures a job, lays out a slot for it and fills it.
func (p *pass) assembleSlot(a *assembler, j *job) error {
	for {
		if err := a.measure(j); err != nil {
			return err
		}
		if j.slot == nil {
			if err := p.layOut(j); err != nil {
				return err
			}
		}
		err := a.gather(j, j.slot.batch.Fields)
		if err == nil {
			copy(j.slot.batch.Index, j.index)
			j.slot.batch.Flags = j.flags()
		}
		if err != errAgain {
			return err
		}
		j.slot.region.Release()
		j.slot = nil
	}
}

// layOut finds memory for a job's slot. While earlier jobs hold slots it waits for them; the job that is delivered
// next only competes with what callers hold, and they decide (errHomeless).
func (p *pass) layOut(j *job) error {
	r := p.run
	for {
		if j.slot = r.newSlot(j); j.slot != nil {
			return nil
		}
		r.mu.Lock()
		if p.earlierFresh(j) {
			r.mu.Unlock()
			return errYield
		}
		if p.ctx.Err() == nil && p.queue[0] == j {
			r.mu.Unlock()
			if j.slot = r.newSlot(j); j.slot != nil {
				return nil
			}
			return errHomeless
		}
		if p.ctx.Err() == nil {
			p.work.Wait()
		}
		stopped := p.ctx.Err() != nil
		r.mu.Unlock()
		if stopped {
			return errStopped
		}
	}
}

// earlierFresh says whether a job before j has nobody who works on it: room came back for one that was homeless. mu is
// held.
func (p *pass) earlierFresh(j *job) bool {
	for _, x := range p.queue {
		if x == j {
			return false
		}
		if x.state == fresh {
			return true
		}
	}
	return false
}

// tight returns errTight if the reader has no memory for a chunk that j needs and no job before it is left, whose
// progress would free some; and errYield if there is one that nobody works on, as it must not wait for a worker that
// waits for it. Nil: what is missing may come.
func (p *pass) tight(j *job) error {
	err := p.behind(j)
	if b := p.run.user.Tight(); b == nil || b.Due >= j.end {
		return nil
	}
	return err
}

func (p *pass) behind(j *job) error {
	p.run.mu.Lock()
	defer p.run.mu.Unlock()
	err := errTight
	for _, x := range p.queue {
		switch {
		case x == j:
			return err
		case x.state == fresh:
			return errYield
		case x.state != finished:
			err = nil
		}
	}
	return err
}

// errYield says that a job before this one has to be done first.
var errYield = errors.New("an earlier batch goes first")

// errHomeless says that a batch fits no slot.
var errHomeless = errors.New("no slot has room")

// settle ends a worker's turn at a job. mu is held.
func (p *pass) settle(j *job, err error) {
	r := p.run
	if err != nil {
		if j.slot != nil {
			j.slot.region.Release()
			j.slot = nil
		}
		r.slots++
	}
	switch err {
	case errYield:
		j.state = fresh
		p.wake()
		return
	case errHomeless:
		j.state = homeless
	default:
		j.state, j.err = finished, err
	}
	p.assembled()
	close(j.done)
}

// assembled notes that the first batch is there and tells the reader where it may go. mu is held.
func (p *pass) assembled() {
	p.first = false
	p.setNeed()
	p.work.Broadcast()
	p.wake()
}

// assembler returns one for a goroutine.
func (r *Run) assembler(p *pass, pat *patience) *assembler {
	return &assembler{
		reader: r.eng.Reader, rec: r.rec, pass: p, sc: newScratch(r.rec), pat: pat,
		skip: r.cfg.SkipErrors, corrupt: r.skipped,
	}
}

// direct returns the one assembler of the calls, of which only one is under way at a time.
func (r *Run) direct(p *pass, pat *patience) *assembler {
	if r.own == nil {
		r.own = r.assembler(p, pat)
	}
	r.own.pass, r.own.pat = p, pat
	return r.own
}

// skipped counts and logs a corrupt sample; too many end the run.
func (r *Run) skipped(err error) error {
	n := r.counts.skipped.Add(1)
	r.eng.log("warning", err.Error())
	if n > int64(r.cfg.MaxSkipped) {
		return fault.Wrap(fault.Corrupt, err, "%d samples were corrupt, more than max_skipped (%d); the last one", n, r.cfg.MaxSkipped)
	}
	return nil
}
