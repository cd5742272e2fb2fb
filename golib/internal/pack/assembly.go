package pack

import (
	"context"
	"fmt"
	"sync"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
)

// Skipped is a source that could not be read and was left out.
type Skipped struct {
	Source uint64 `json:"source"`
	Key    string `json:"key"`
	Error  string `json:"error"`
}

// assembly turns chunks' worth of samples into shards: workers fill and encode in any order, one goroutine appends in
// the order of submit and keeps the journal. Memory is bounded by the number of builders. One goroutine submits.
type assembly struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	layout *chunk.Layout
	label  int         // offset of the label in every body; -1: none
	codec  chunk.Codec // set before the first submit
	shards *shardWriter
	note   func(done) error

	free  chan *chunk.Builder
	work  chan *job
	order chan *job
	wg    sync.WaitGroup

	// Of the appender, until all goroutines have ended:
	fresh   done // since the last shard
	total   labelCounts
	onShard func(done)        // told after the journal; may be nil
	onChunk func(next uint64) // told how far the input is in shards; may be nil
}

// job is one chunk on its way.
type job struct {
	builder *chunk.Builder
	fill    func(*chunk.Builder) ([]Skipped, error) // run by a worker; nil: already filled
	next    uint64                                  // where the input goes on after it
	skipped []Skipped
	encoded chunk.Encoded
	labels  labelCounts
	ready   chan error // one value, when encoded
}

// errStopped is the cause of a cancelled assembly that has no other.
var errStopped = fault.New(fault.Canceled, "packing was stopped")

func newAssembly(ctx context.Context, layout *chunk.Layout, schema chunk.Schema, shards *shardWriter, workers int) *assembly {
	a := &assembly{layout: layout, label: labelAt(schema, layout), shards: shards}
	shards.after = a.shardDone
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	builders := workers + 2 // one being filled by the submitter, one being appended
	a.free = make(chan *chunk.Builder, builders)
	for range builders {
		a.free <- chunk.NewBuilder(layout)
	}
	a.work = make(chan *job, builders)
	a.order = make(chan *job, builders)
	for range workers {
		a.wg.Add(1)
		go a.encode()
	}
	a.wg.Add(1)
	go a.append()
	return a
}

// builder waits for a free one.
func (a *assembly) builder() (*chunk.Builder, error) {
	select {
	case b := <-a.free:
		b.Reset()
		return b, nil
	case <-a.ctx.Done():
		return nil, a.err()
	}
}

// submit hands in the next chunk; its builder comes from builder. The channels hold all builders, so it never blocks.
func (a *assembly) submit(j *job) {
	j.ready = make(chan error, 1)
	a.order <- j
	a.work <- j
}

// encode is a worker.
func (a *assembly) encode() {
	defer a.wg.Done()
	for j := range a.work {
		j.ready <- a.prepare(j)
	}
}

func (a *assembly) prepare(j *job) (err error) {
	if a.ctx.Err() != nil {
		return a.err()
	}
	if j.fill != nil {
		if j.skipped, err = j.fill(j.builder); err != nil {
			return err
		}
	}
	if j.builder.Len() == 0 { // all were skipped
		return nil
	}
	if a.label >= 0 {
		j.labels = countLabels(j.builder.Len(), func(i int) int64 { return labelIn(j.builder.Sample(i), a.layout.Prefix()+a.label) })
	}
	j.encoded, err = j.builder.Encode(a.codec)
	return err
}

// append is the one goroutine that writes.
func (a *assembly) append() {
	defer a.wg.Done()
	for j := range a.order {
		err := <-j.ready
		if err == nil && a.ctx.Err() == nil && j.builder.Len() > 0 {
			err = a.shards.append(&j.encoded)
		}
		if err != nil {
			a.cancel(err)
		}
		if a.ctx.Err() == nil {
			a.fresh.Next = j.next
			a.fresh.Skipped = append(a.fresh.Skipped, j.skipped...)
			a.fresh.Labels.add(j.labels)
			a.fresh.Samples = a.shards.samples
			if a.onChunk != nil {
				a.onChunk(j.next)
			}
		}
		a.free <- j.builder
	}
}

// shardDone is the shard writer's callback: the journal learns of the shard and of all that came with it.
func (a *assembly) shardDone(s chunk.Shard, last bool) error {
	d := a.fresh
	d.Shard, d.Last = s, last
	a.total.add(d.Labels)
	a.fresh = done{Next: d.Next, Samples: d.Samples}
	if err := a.note(d); err != nil {
		return err
	}
	if a.onShard != nil {
		a.onShard(d)
	}
	return nil
}

// close ends the goroutines after the last submitted chunk, and returns the first error.
func (a *assembly) close() error {
	close(a.work)
	close(a.order)
	a.wg.Wait()
	defer a.cancel(errStopped)
	if a.ctx.Err() != nil {
		return a.err()
	}
	return nil
}

// err is why the assembly stopped.
func (a *assembly) err() error {
	cause := context.Cause(a.ctx)
	if fault.KindOf(cause) != fault.Internal {
		return cause
	}
	if cause == context.Canceled || cause == context.DeadlineExceeded {
		return fault.Wrap(fault.Canceled, cause, "packing was stopped")
	}
	return fmt.Errorf("pack: %w", cause)
}
