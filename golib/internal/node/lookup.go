package node

import (
	"slices"
	"time"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// Read fills dst with the samples of these stored numbers, in this order, neighbours by one request. want are fields by
// their place in the schema, nil means all. Too small buffers: fault.Range, needs set; what was read is kept for the next
// call, which usually asks for the same with more room.
func (r *Reader) Read(numbers []int64, want []int, dst *Batch, timeout time.Duration) error {
	pat := &patience{limit: timeout}
	defer pat.done()
	l := r.takeKept(numbers, want)
	if l == nil {
		var err error
		if l, err = r.look(numbers, want, pat); err != nil {
			return err
		}
		l.read(make([]byte, l.stage), func() {})
	}
	if len(dst.Fields) != len(l.rec.fields) {
		return fault.New(fault.Invalid, "the batch has %d fields, %d are wanted", len(dst.Fields), len(l.rec.fields))
	}
	a := l.assembler(pat)
	if err := a.measure(l.j); err != nil {
		return lookupError(l.j, err)
	}
	if err := l.rec.accept(dst, l.j); err != nil {
		if fault.KindOf(err) == fault.Range {
			r.keep(l, want)
		}
		return err
	}
	if err := a.gather(l.j, dst.Fields); err != nil {
		return lookupError(l.j, err)
	}
	copy(dst.Index, numbers)
	dst.Flags = 0
	r.counts.delivered(l.j, dst)
	return nil
}

// kept is a lookup whose caller had too little room.
type kept struct {
	look *lookup
	want []int
}

func (r *Reader) keep(l *lookup, want []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept = kept{l, slices.Clone(want)}
}

// takeKept returns what was kept if it is this; what is not is forgotten.
func (r *Reader) takeKept(numbers []int64, want []int) *lookup {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.kept
	r.kept = kept{}
	if k.look == nil || !slices.Equal(k.look.j.index, numbers) || !slices.Equal(k.want, want) {
		return nil
	}
	return k.look
}

// Stats are the counters of Read, and of all requests to storage.
func (r *Reader) Stats() Stats {
	s := r.storage()
	s.Samples, s.Batches, s.BytesDelivered = r.counts.samples.Load(), r.counts.batches.Load(), r.counts.bytes.Load()
	s.Single = s.Samples
	return s
}

// storage is the part of the counters that is about requests to storage.
func (r *Reader) storage() Stats {
	c := r.source.Counters()
	return Stats{
		Reads: c.Lands + c.Ranges, BytesRead: c.LandBytes + c.RangeBytes, SingleReads: c.Ranges, SingleBytes: c.RangeBytes,
		Retries: c.Retries,
	}
}

func lookupError(j *job, err error) error {
	if err != errTimeout {
		return err
	}
	if w := j.waits.Load(); w != nil {
		return fault.New(fault.TimedOut, "reading samples: has waited %.1f s for %s", time.Since(w.since).Seconds(), w.what)
	}
	return fault.New(fault.TimedOut, "reading samples took too long")
}

// Origin returns source number and key of a stored number.
func (r *Reader) Origin(number int64, timeout time.Duration) (source uint64, key string, err error) {
	c, sample, err := r.Locate(number)
	if err != nil {
		return 0, "", err
	}
	pat := &patience{limit: timeout}
	defer pat.done()
	source, key, err = r.origin(c, sample, pat)
	if err == errTimeout {
		err = fault.New(fault.TimedOut, "the table of chunk %d did not come in time", c)
	}
	return source, key, err
}
