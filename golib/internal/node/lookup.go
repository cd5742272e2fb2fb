package node

import (
	"time"

	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/plan"
)

// Read fills dst with the samples of these stored numbers, in this order, each read by itself: for looking, not for
// training. want are fields by their place in the schema, nil means all. Too small buffers: fault.Range, needs set.
func (r *Reader) Read(numbers []int64, want []int, dst *Batch, timeout time.Duration) error {
	rec, err := newRecord(r.schema, r.layout, want)
	if err != nil {
		return err
	}
	if len(dst.Fields) != len(rec.fields) {
		return fault.New(fault.Invalid, "the batch has %d fields, %d are wanted", len(dst.Fields), len(rec.fields))
	}
	j := &job{n: len(numbers), index: numbers, fetched: make([]*fetch, len(numbers))}
	for i, number := range numbers {
		c, sample, err := r.Locate(number)
		if err != nil {
			return err
		}
		j.ops = append(j.ops, op{chunk: plan.ChunkID(c), sample: sample, dest: int32(i), fetch: int32(i)})
	}
	pat := &patience{limit: timeout}
	defer pat.done()
	a := &assembler{reader: r, rec: rec, sc: newScratch(rec), pat: pat}
	if err := a.measure(j); err != nil {
		return lookupError(j, err)
	}
	if err := rec.accept(dst, j); err != nil {
		return err
	}
	if err := a.gather(j, dst.Fields); err != nil {
		return lookupError(j, err)
	}
	copy(dst.Index, numbers)
	dst.Flags = 0
	return nil
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
