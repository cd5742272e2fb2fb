package resident

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redox-loader/redox/golib/internal/buffer"
	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/store"
)

// Chunk is a chunk in memory or on its way there. Who took it may use it until dropping it.
type Chunk struct {
	set    *Set
	id     uint32
	region *buffer.Region
	asked  time.Time // when its landing was asked for

	// Written by the reader before ready is set, constant from then on.
	view    chunk.View
	damaged bool
	err     error

	ready atomic.Bool
	done  chan struct{} // closed when ready

	// Guarded by set.mu.
	pins    int
	heap    *farthest // in which it is cached, or nil
	place   int       // in heap
	next    int64     // next use on the timeline of the heap's user
	dropper *User     // of a chunk dropped on its way here; next is on its timeline
}

// ID is the chunk's number.
func (c *Chunk) ID() uint32 { return c.id }

// Ready says whether the chunk has landed or failed.
func (c *Chunk) Ready() bool { return c.ready.Load() }

// Wait waits until the chunk has landed, and returns why it has not.
func (c *Chunk) Wait(ctx context.Context) error {
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Done is closed when the chunk has landed or failed.
func (c *Chunk) Done() <-chan struct{} { return c.done }

// Err is why the chunk could not be landed. Only after Ready.
func (c *Chunk) Err() error { return c.err }

// View is the chunk's content. Only after Ready without Err.
func (c *Chunk) View() *chunk.View { return &c.view }

// Damaged says that the payload's checksum is wrong: each sample has to be checked by itself. Only after Ready.
func (c *Chunk) Damaged() bool { return c.damaged }

// String says which chunk it is and how long it has been waited for.
func (c *Chunk) String() string {
	return fmt.Sprintf("chunk %d (%s), asked for %.1f s ago", c.id, c.set.source.Name(c.id), time.Since(c.asked).Seconds())
}

// submit asks for the landing.
func (c *Chunk) submit(due int64) {
	s := c.set
	e := s.index.Entries[c.id]
	start, end := int64(chunk.HeaderSize)+int64(e.TableBytes), int64(e.Stored)
	sum, at := uint32(0), int64(0)
	s.queue.Submit(&store.Request{
		Chunk: c.id, Dst: c.region.Bytes(), Whole: true, Due: due,
		Tap: func(piece []byte) {
			lo, hi := max(start-at, 0), min(end-at, int64(len(piece)))
			if lo < hi {
				sum = chunk.SumMore(sum, piece[lo:hi])
			}
			at += int64(len(piece))
		},
		Done: func(data []byte, err error) { c.arrive(data, e, sum, err, due, false) },
	})
}

// arrive is the end of a read: it checks what came. A wrong checksum is given a second chance, as it may have
// happened on the way; only what is wrong twice is wrong in storage.
func (c *Chunk) arrive(data []byte, e chunk.Entry, sum uint32, err error, due int64, again bool) {
	s := c.set
	var view chunk.View
	damaged := false
	if err == nil {
		if again {
			sum = chunk.Sum(data[min(int64(chunk.HeaderSize)+int64(e.TableBytes), int64(len(data))):])
		}
		view, err = chunk.ParseSummed(data, e, s.layout, sum)
		if err != nil && !again {
			s.rereads.Add(1)
			s.queue.Submit(&store.Request{
				Chunk: c.id, Dst: c.region.Bytes(), Whole: true, Due: due,
				Done: func(data []byte, err error) { c.arrive(data, e, 0, err, due, true) },
			})
			return
		}
		if err != nil {
			if v, e := chunk.ParseUnsummed(data, e, s.layout); e == nil {
				view, err, damaged = v, nil, true
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.view, c.damaged, c.err = view, damaged, locate(err, e)
	c.ready.Store(true)
	close(c.done)
	if c.err != nil || damaged {
		delete(s.chunks, c.id) // the next run shall try again
	}
	if c.pins == 0 {
		s.settle(c, c.dropper, c.next)
		s.wake()
	}
}

// locate adds chunk and shard to an error that does not say them.
func locate(err error, e chunk.Entry) error {
	var f *fault.Error
	if !errors.As(err, &f) || f.Chunk >= 0 || f.Kind == fault.Canceled {
		return err
	}
	g := *f
	g.Message = fmt.Sprintf("shard %d, chunk %d: %s", e.Shard, e.Chunk, f.Message)
	return g.At(int64(e.Shard), int64(e.Chunk), -1)
}
