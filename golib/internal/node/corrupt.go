package node

import (
	"errors"
	"fmt"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// spoil marks a corrupt sample for replacement, or returns the error that ends the job.
func (a *assembler) spoil(j *job, o *op, err error) error {
	if !a.skip || fault.KindOf(err) != fault.Corrupt {
		return err
	}
	if j.bad[o.dest] {
		return nil
	}
	j.bad[o.dest] = true
	j.bads++
	return a.corrupt(a.named(o, err))
}

// named adds number and key to what is said about a corrupt sample. The key is in the chunk's table, if that is good.
func (a *assembler) named(o *op, err error) error {
	e := a.reader.index.Entries[o.chunk]
	number := int64(e.First) + int64(o.sample)
	key := ""
	if a.pass != nil {
		if h := a.pass.held[o.chunk].Load(); h != nil && h.chunk.Ready() && h.chunk.Err() == nil {
			key = fmt.Sprintf(" (key %q)", h.chunk.View().Key(int(o.sample)))
		}
	}
	return fault.Wrap(fault.Corrupt, err, "sample %d%s of shard %d, chunk %d is corrupt", number, key, e.Shard, o.chunk).
		At(int64(e.Shard), int64(o.chunk), number)
}

// locate says where a sample that does not come apart lies.
func (a *assembler) locate(o *op, err error) error {
	if err == nil {
		return nil
	}
	var f *fault.Error
	if errors.As(err, &f) && f.Sample >= 0 {
		return err
	}
	e := a.reader.index.Entries[o.chunk]
	number := int64(e.First) + int64(o.sample)
	return fault.Wrap(fault.Corrupt, err, "shard %d, chunk %d, sample %d", e.Shard, o.chunk, number).
		At(int64(e.Shard), int64(o.chunk), number)
}

// standIn is the place whose sample is repeated at a bad place: the previous good one, else the next.
func (j *job) standIn(place int) int {
	for i := place - 1; i >= 0; i-- {
		if !j.bad[i] {
			return i
		}
	}
	for i := place + 1; i < j.n; i++ {
		if !j.bad[i] {
			return i
		}
	}
	return -1
}

// standIns calls each with every bad place and the place whose sample stands in for it.
func (j *job) standIns(each func(bad, good int)) error {
	if j.bads == 0 {
		return nil
	}
	for i := range j.n {
		if !j.bad[i] {
			continue
		}
		from := j.standIn(i)
		if from < 0 {
			return fault.New(fault.Corrupt, "all %d samples of a batch are corrupt", j.n)
		}
		each(i, from)
	}
	return nil
}

func (a *assembler) replaceSizes(j *job) error {
	fields := len(a.rec.fields)
	return j.standIns(func(bad, good int) {
		copy(j.sizes[bad*fields:(bad+1)*fields], j.sizes[good*fields:])
	})
}

// replace fills the places of bad samples.
func (a *assembler) replace(j *job, cols []Column) error {
	return j.standIns(func(bad, good int) {
		a.rec.again(cols, bad, good)
		j.index[bad] = j.index[good]
	})
}
