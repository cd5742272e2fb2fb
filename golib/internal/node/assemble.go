package node

import (
	"errors"
	"fmt"
	"time"

	"github.com/redox-loader/redox/golib/internal/plan"
	"github.com/redox-loader/redox/golib/internal/resident"
)

// assembler fills columns with the samples of a job. Each goroutine that assembles has one of its own.
type assembler struct {
	reader *Reader
	rec    *record
	pass   *pass // nil when only fetched samples are put together (Reader.Read)
	sc     *scratch
	pat    *patience
	skip   bool // corrupt samples are replaced
	// corrupt is told each corrupt sample that is replaced; its error ends the job.
	corrupt func(err error) error
}

// measure finds the sizes of all samples of a job, without consuming any. In schemas of fixed-size fields there is
// nothing to find.
func (a *assembler) measure(j *job) error {
	if err := a.await(j); err != nil {
		return err
	}
	fields := len(a.rec.fields)
	if a.rec.fixed {
		if j.bad = resize(j.bad, j.n); !j.measured {
			clear(j.bad)
			j.measured = true
		}
		return nil
	}
	if !j.measured {
		j.measured = true
		j.sizes, j.bad = resize(j.sizes, j.n*fields), resize(j.bad, j.n)
		clear(j.bad)
	}
	for ; j.sized < len(j.ops); j.sized++ {
		o := &j.ops[j.sized]
		if o.dest < 0 {
			continue
		}
		out := j.sizes[int(o.dest)*fields : (int(o.dest)+1)*fields]
		if err := a.sizeOf(j, j.sized, out); err != nil {
			if err = a.spoil(j, o, err); err != nil {
				return err
			}
		}
		if f := j.fetch(o); f != nil && f.spare == nil && a.exchanges() {
			j.letGo(o) // there is no memory to keep it in: it will be read again
		}
	}
	return a.replaceSizes(j)
}

// sizeOf finds the sizes of one sample.
func (a *assembler) sizeOf(j *job, i int, out []uint64) error {
	s, err := a.find(j, i, true)
	if err == errTight {
		return a.sizeFromTable(j, i, out)
	}
	if err != nil {
		return err
	}
	ndim, err := a.rec.sizes(s, a.sc, out)
	j.ndim = max(j.ndim, ndim)
	return a.locate(&j.ops[i], err)
}

// sizeFromTable finds the sizes of a sample whose chunk can only be brought in when this job, whose sizes are needed
// first, has consumed samples of others. The table tells the size of a body; if the split of it is needed, the sample
// is read by itself.
func (a *assembler) sizeFromTable(j *job, i int, out []uint64) error {
	o := &j.ops[i]
	if a.rec.whole {
		asked := a.reader.table(uint32(o.chunk))
		if err := a.wait(j, o.chunk, asked.done, func() string { return "the table of " + a.reader.where(o.chunk) }); err != nil {
			return err
		}
		t, err := a.reader.Table(uint32(o.chunk), a.pat)
		if err != nil {
			return err
		}
		out[0] = t.RawBody(int(o.sample))
		return nil
	}
	o.fetch = int32(len(j.fetched))
	j.fetched = append(j.fetched, nil)
	return a.sizeOf(j, i, out)
}

// await starts all single reads of a job at once, and waits for them; in an exchange it does not wait, as what is read
// may still come.
func (a *assembler) await(j *job) error {
	if a.exchanges() {
		a.lookAhead(j)
		return nil
	}
	for i := range j.ops {
		if o := &j.ops[i]; o.fetch >= 0 && j.fetched[o.fetch] == nil {
			j.fetched[o.fetch] = a.reader.fetch(uint32(o.chunk), o.sample, nil)
			a.pass.countFetch()
		}
	}
	for i := range j.ops {
		o := &j.ops[i]
		if o.fetch < 0 {
			continue
		}
		if err := a.wait(j, o.chunk, j.fetched[o.fetch].done, func() string {
			return fmt.Sprintf("single read %d of %d, of %s", o.fetch+1, len(j.fetched), a.reader.where(o.chunk))
		}); err != nil {
			return err
		}
	}
	return nil
}

// errTight says that a chunk cannot come before this job goes on.
var errTight = errors.New("no memory for the chunk yet")

// find returns where a sample is stored: in a held chunk or read by itself. It waits for either. With tight, it
// returns errTight instead of waiting for memory that only this job's progress can free.
func (a *assembler) find(j *job, i int, tight bool) (stored, error) {
	o := &j.ops[i]
	if a.exchanges() && !o.own {
		if o.in >= 0 {
			return a.receive(j, i, tight)
		}
		return a.single(j, i)
	}
	if o.fetch < 0 {
		h := a.pass.held[o.chunk].Load()
		if i < j.consumed {
			h = nil // others may hold it, but not for this sample
		} else if h == nil || !h.chunk.Ready() {
			var err error
			if h, err = a.bring(j, i, tight); err != nil {
				return stored{}, err
			}
		}
		if h != nil {
			return a.from(h.chunk, o)
		}
		// Used up before a failed try of this batch: its samples have to be read again.
		o.fetch = int32(len(j.fetched))
		j.fetched = append(j.fetched, nil)
	}
	return a.single(j, i)
}

// from takes a sample out of a landed chunk.
func (a *assembler) from(c *resident.Chunk, o *op) (s stored, err error) {
	if c.Err() != nil {
		return s, c.Err()
	}
	v := c.View()
	if c.Damaged() {
		if err := v.Check(int(o.sample)); err != nil {
			return s, err
		}
	}
	s.prefix, s.body, s.raw = v.Stored(int(o.sample))
	return s, nil
}

// bring waits until an op's chunk has been taken and has landed. Nil: the op has been consumed already and the chunk
// is gone.
func (a *assembler) bring(j *job, i int, tight bool) (*hold, error) {
	p, o := a.pass, &j.ops[i]
	for {
		h := p.held[o.chunk].Load()
		if h != nil {
			if h.chunk.Ready() {
				return h, nil
			}
			begin := time.Now()
			err := a.wait(j, o.chunk, h.chunk.Done(), h.chunk.String)
			j.longest = max(j.longest, time.Since(begin))
			return h, err
		}
		if i < j.consumed {
			return nil, nil
		}
		arrived, err := p.expect(o.chunk)
		if err == nil && arrived == nil {
			continue
		}
		if err == nil && tight {
			err = p.tight(j)
		}
		if err != nil {
			return nil, err
		}
		begin := time.Now()
		if err := a.wait(j, o.chunk, arrived, func() string { return a.reader.where(o.chunk) + " to be read" }); err != nil {
			return nil, err
		}
		j.longest = max(j.longest, time.Since(begin))
	}
}

// expect returns what is closed when the next chunk is taken, the reader finds no memory or another job is done; nil if
// the chunk was taken meanwhile.
func (p *pass) expect(c plan.ChunkID) (<-chan struct{}, error) {
	p.run.mu.Lock()
	defer p.run.mu.Unlock()
	if p.held[c].Load() != nil {
		return nil, nil
	}
	if p.err != nil {
		return nil, p.err
	}
	p.awaited++
	return p.arrived, nil
}

// gather writes the job's samples into columns that are laid out for them, and counts samples off their chunks as it
// goes, so that a chunk used up in the middle of a batch makes room for one needed at its end. When it fails, what it
// has written is kept, and the next try goes on from there.
func (a *assembler) gather(j *job, cols []Column) error {
	a.rec.restore(j, cols)
	err := a.write(j, cols)
	if err != nil {
		a.rec.keep(j, cols)
	}
	return err
}

func (a *assembler) write(j *job, cols []Column) error {
	for ; j.written < len(j.ops); j.written++ {
		i := j.written
		o := &j.ops[i]
		if o.dest >= 0 && !j.bad[o.dest] {
			if err := a.put(j, i, cols); err != nil {
				if err = a.spoil(j, o, err); err != nil {
					return err
				}
				if !a.rec.fixed {
					// The columns are laid out for what can't be delivered.
					if err := a.replaceSizes(j); err != nil {
						return err
					}
					return errAgain
				}
			}
		}
		if o.own && !o.out && i >= j.consumed {
			if err := a.count(j, i); err != nil {
				return err
			}
			j.consumed = i + 1
		}
		if a.exchanges() {
			a.passed(j, o)
		}
	}
	if a.exchanges() {
		a.pass.run.punctual.waited(j.longest)
	}
	return a.replace(j, cols)
}

// put writes the sample of an op to its place. What another node sent and does not come apart is read from storage.
func (a *assembler) put(j *job, i int, cols []Column) error {
	o := &j.ops[i]
	for {
		s, err := a.find(j, i, false)
		if err != nil {
			return err
		}
		if err = a.rec.put(cols, int(o.dest), s, a.sc); err == nil || o.in < 0 || o.refused {
			return a.locate(o, err)
		}
		o.refused = true
	}
}

// count marks a sample of a held chunk as used.
func (a *assembler) count(j *job, i int) error {
	o := &j.ops[i]
	h := a.pass.held[o.chunk].Load()
	if h == nil {
		var err error
		if h, err = a.bring(j, i, false); err != nil || h == nil {
			return err
		}
	}
	a.pass.consume(o.chunk, h)
	return nil
}

// errAgain says that a job has to be laid out anew.
var errAgain = errors.New("lay out again")

// wait waits for storage on behalf of a job and lets others see it.
func (a *assembler) wait(j *job, chunk plan.ChunkID, ch <-chan struct{}, what func() string) error {
	select {
	case <-ch:
		return nil
	default:
	}
	j.waits.Store(&waitFor{what: what(), chunk: chunk, since: time.Now()})
	err := a.pat.wait(ch)
	if err == nil || errors.Is(err, errTimeout) {
		j.lastStorage.Store(time.Now().UnixNano())
	}
	if err == nil {
		j.waits.Store(nil)
	}
	return err
}
