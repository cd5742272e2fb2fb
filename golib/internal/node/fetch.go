package node

import (
	"sync/atomic"

	"github.com/redox-loader/redox/golib/internal/store"
)

// fetch is one sample read by itself: not from a chunk in memory, but by a range of its chunk. That happens for
// padding, for samples whose chunks other nodes read, and for looking; it is counted apart.
type fetch struct {
	stored
	err   error
	done  chan struct{}
	spare *spare       // what its memory counts against, or nil
	uses  atomic.Int32 // of that memory: who asked, and the read itself
}

// spare is memory that a run has set aside for samples read by themselves, in samples of the largest size.
type spare struct{ left atomic.Int32 }

func (s *spare) take() bool {
	for {
		n := s.left.Load()
		if n <= 0 {
			return false
		}
		if s.left.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

// letGo is called by who asked for the sample when it needs it no more.
func (f *fetch) letGo() {
	if f.spare != nil && f.uses.Add(-1) == 0 {
		f.spare.left.Add(1)
	}
}

// finish is the end of the read.
func (f *fetch) finish() {
	close(f.done)
	f.letGo()
}

// fetch reads a sample by itself, once the table says where it lies. Its memory counts against spare, if that is not
// nil, from now on until it has been let go.
func (r *Reader) fetch(id, sample uint32, spare *spare) *fetch {
	f := &fetch{done: make(chan struct{}), spare: spare}
	f.uses.Store(2)
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
		f.finish()
		return
	}
	off, n := t.Range(int(sample))
	r.fetchRange(t, id, sample, f, off, make([]byte, n), false)
}

// fetchRange reads the sample's bytes; a wrong checksum is given a second chance.
func (r *Reader) fetchRange(t *table, id, sample uint32, f *fetch, off uint64, dst []byte, again bool) {
	if len(dst) == 0 {
		f.prefix, f.body, f.raw, f.err = t.Sample(int(sample), dst)
		f.finish()
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
		f.finish()
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
