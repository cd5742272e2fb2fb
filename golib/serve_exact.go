package redox

import (
	"sync"
	"time"

	"github.com/redox-loader/redox/golib/internal/attach"
	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/node"
	"github.com/redox-loader/redox/golib/internal/store"
)

// servedExact reads samples by number for other processes, in the memory that the loaders have, too.
type servedExact struct {
	data       *servedData
	engine     *node.Engine
	want       []int
	skip       bool
	maxSkipped int64

	mu    sync.Mutex
	ranks map[int]*node.Stats // what each rank has got
}

// Exact returns what reads samples by number. It shares the memory of loaders; where nobody gave a limit, those that come
// later get memory of their own, for which they know the right size.
func (s *servedData) Exact() (attach.Exact, error) {
	text, err := encode(s.options)
	if err != nil {
		return nil, err
	}
	var o loaderOptions
	if err := decode(text, &o); err != nil {
		return nil, err
	}
	x := &servedExact{data: s, skip: o.OnError == "skip", ranks: map[int]*node.Stats{}}
	if x.want, err = s.dataset.fieldNumbers(o.Fields); err != nil {
		return nil, err
	}
	if x.maxSkipped, err = o.maxSkipped(); err != nil {
		return nil, err
	}
	if s.engine != nil {
		x.engine = s.engine.Retain()
	} else if x.engine, err = s.newEngine(&o); err != nil {
		return nil, err
	} else if !s.auto {
		s.engine = x.engine.Retain()
	}
	s.loaders.Add(1)
	return x, nil
}

// newEngine makes the engine that a loader would make.
func (s *servedData) newEngine(o *loaderOptions) (*node.Engine, error) {
	limit, err := o.memoryLimit()
	if err != nil {
		return nil, err
	}
	io, err := store.ParseIO(o.IO)
	if err != nil {
		return nil, err
	}
	if limit == 0 {
		limit = max(1, store.FreeMemory()/4) // as far as it is used
	}
	reader := s.dataset.newReader(io)
	defer reader.Close() // the engine has its own reference
	return node.NewEngine(reader, limit, log.line)
}

func (x *servedExact) Memory() (fd uintptr, size int64) { return x.engine.SlotMemory() }

func (x *servedExact) Sight() node.Sight { return x.engine.Sight() }

func (x *servedExact) Look(numbers []int64, timeout time.Duration) (*node.Exact, error) {
	return x.engine.NewExact(numbers, x.want, timeout)
}

func (x *servedExact) Room(e *node.Exact, workers int) (ok, scarce bool, err error) {
	return e.Room(workers, x.spare())
}

func (x *servedExact) NewResult(size, pool int64) *node.Result {
	return x.engine.NewResult(size, pool, x.spare())
}

// spare is how far the limit may grow: not at all if it was given.
func (x *servedExact) spare() int64 {
	if x.data.auto {
		return store.FreeMemory() / 4
	}
	return 0
}

func (x *servedExact) Fill(e *node.Exact, rank int, timeout time.Duration) (*node.Result, error) {
	begin := time.Now()
	var corrupt func(error) error
	if x.skip {
		corrupt = func(err error) error { return x.skipped(rank, err) }
	}
	r, err := e.Fill(timeout, corrupt)
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.of(rank)
	c.Wait += time.Since(begin)
	c.WaitStorage = c.Wait
	if err == nil {
		b := r.Batch()
		c.Samples += int64(b.N)
		c.Single += int64(b.N)
		c.Batches++
		for k := range b.Fields {
			c.BytesDelivered += int64(b.Fields[k].Need)
		}
	}
	return r, err
}

// of is a rank's counters. mu is held.
func (x *servedExact) of(rank int) *node.Stats {
	c := x.ranks[rank]
	if c == nil {
		c = &node.Stats{}
		x.ranks[rank] = c
	}
	return c
}

// skipped counts and logs a corrupt sample; too many end the reading.
func (x *servedExact) skipped(rank int, err error) error {
	x.mu.Lock()
	c := x.of(rank)
	c.Skipped++
	n := c.Skipped
	x.mu.Unlock()
	log.line("warning", err.Error())
	if n > x.maxSkipped {
		return fault.Wrap(fault.Corrupt, err, "%d samples were corrupt, more than max_skipped (%d); the last one", n, x.maxSkipped)
	}
	return nil
}

func (x *servedExact) Stats(rank int) ([]byte, error) {
	s := x.engine.ExactStats()
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.of(rank)
	s.Samples, s.Single, s.Batches, s.BytesDelivered = c.Samples, c.Single, c.Batches, c.BytesDelivered
	s.Skipped, s.Wait, s.WaitStorage = c.Skipped, c.Wait, c.WaitStorage
	return encode(statsOf(s))
}

func (x *servedExact) Close() {
	x.data.loaders.Add(-1)
	x.engine.Close()
}
