package redox

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// Job is long work in the background, with progress: packing a tree of files, verifying a data set. Its goroutine ends
// with Close at the latest.
type Job struct {
	cancel   context.CancelFunc
	done     chan struct{}
	progress progress
	result   []byte // valid once done is closed
	err      error
}

// progress is written by the work and read by whoever waits.
type progress struct {
	done, total atomic.Int64
	unit        string
}

func (p *progress) set(done, total int64) {
	p.done.Store(done)
	p.total.Store(total)
}

// work is one kind of job: it checks its options at once and returns what runs.
type work func(options []byte, p *progress) (run func(context.Context) (any, error), err error)

var works = map[string]work{
	"pack_files": packFiles,
	"verify":     verifyDataset,
}

// NewJob starts work of a kind.
func NewJob(kind string, optionsJSON []byte) (*Job, error) {
	prepare, known := works[kind]
	if !known {
		return nil, fault.New(fault.Invalid, "kind=%q: expected pack_files or verify", kind)
	}
	j := &Job{done: make(chan struct{})}
	run, err := prepare(optionsJSON, &j.progress)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	j.cancel = cancel
	go j.run(ctx, run)
	return j, nil
}

func (j *Job) run(ctx context.Context, run func(context.Context) (any, error)) {
	defer close(j.done)
	defer func() {
		if p := recover(); p != nil {
			j.err = fault.New(fault.Internal, "panic: %v", p)
		}
	}()
	result, err := run(ctx)
	if err != nil {
		if ctx.Err() != nil {
			err = fault.Wrap(fault.Canceled, err, "canceled")
		}
		j.err = err
		return
	}
	j.result, j.err = encode(result)
}

// Wait waits for the end, at most timeout (forever if negative). While the job runs it returns its progress.
func (j *Job) Wait(timeout time.Duration) (json []byte, done bool, err error) {
	if timeout < 0 {
		<-j.done
		return j.result, true, j.err
	}
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case <-j.done:
		return j.result, true, j.err
	case <-t.C:
	}
	json, err = encode(map[string]any{
		"done": j.progress.done.Load(), "total": j.progress.total.Load(), "unit": j.progress.unit,
	})
	return json, false, err
}

// Cancel asks the work to stop soon.
func (j *Job) Cancel() { j.cancel() }

// Close cancels the work and waits for its end.
func (j *Job) Close() {
	j.cancel()
	<-j.done
}
