package node

import (
	"github.com/redox-loader/redox/golib/internal/store"
)

// fetch is one sample read by itself: not from a chunk in memory, but by a range of its chunk. That happens for
// padding, for samples whose chunks other nodes read, and for looking; it is counted apart.
type fetch struct {
	stored
	err  error
	done chan struct{}
}

// fetch reads a sample by itself, once the table says where it lies.
func (r *Reader) fetch(id, sample uint32) *fetch {
	f := &fetch{done: make(chan struct{})}
	t := r.table(id)
	select {
	case <-t.done:
		r.fetchFrom(t, id, sample, f)
	default:
		// One short-lived goroutine for each sample whose table is on its way too: this is the slow path.
		go func() {
			<-t.done
			r.fetchFrom(t, id, sample, f)
		}()
	}
	return f
}

func (r *Reader) fetchFrom(t *table, id, sample uint32, f *fetch) {
	if t.err != nil {
		f.err = t.err
		close(f.done)
		return
	}
	off, n := t.Range(int(sample))
	r.fetchRange(t, id, sample, f, off, make([]byte, n), false)
}

// fetchRange reads the sample's bytes; a wrong checksum is given a second chance.
func (r *Reader) fetchRange(t *table, id, sample uint32, f *fetch, off uint64, dst []byte, again bool) {
	if len(dst) == 0 {
		f.prefix, f.body, f.raw, f.err = t.Sample(int(sample), dst)
		close(f.done)
		return
	}
	r.queue.Submit(&store.Request{Chunk: id, Off: int64(off), Dst: dst, Due: -1, Done: func(data []byte, err error) {
		if err == nil {
			f.prefix, f.body, f.raw, err = t.Sample(int(sample), data)
			if err != nil && !again {
				r.fetchRange(t, id, sample, f, off, dst, true)
				return
			}
		}
		if err != nil {
			f.err = locate(err, r.index.Entries[id])
		}
		close(f.done)
	}})
}

// Key and Source of a sample come from its table.
func (r *Reader) origin(id, sample uint32, p *patience) (source uint64, key string, err error) {
	t, err := r.Table(id, p)
	if err != nil {
		return 0, "", err
	}
	return t.Source(int(sample)), t.Key(int(sample)), nil
}
