package redox

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// Job is long work in the background, with progress: packing a tree of files, verifying a data set. Its goroutine ends
// with Close at the latest, unless storage stands still; see leaveAfter.
type Job struct {
	*cancelable
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
	j := &Job{cancelable: newCancelable(), done: make(chan struct{})}
	run, err := prepare(optionsJSON, &j.progress)
	if err != nil {
		return nil, err
	}
	go j.run(run)
	return j, nil
}

func (j *Job) run(run func(context.Context) (any, error)) {
	defer j.stop() // of no use any more
	defer close(j.done)
	defer func() {
		if p := recover(); p != nil {
			j.err = fault.New(fault.Internal, "panic: %v", p)
		}
	}()
	result, err := run(j.ctx)
	if err != nil {
		if j.ctx.Err() != nil {
			err = fault.Wrap(fault.Canceled, err, "canceled")
		}
		j.err = err
		return
	}
	j.result, j.err = encode(result)
}

// Wait waits for the end, at most timeout (forever if negative). While the job runs it returns its progress. A job that
// was canceled and can't end is canceled all the same.
func (j *Job) Wait(timeout time.Duration) (json []byte, done bool, err error) {
	if !j.ended(timeout) {
		json, err = encode(map[string]any{
			"done": j.progress.done.Load(), "total": j.progress.total.Load(), "unit": j.progress.unit,
		})
		return json, false, err
	}
	if err := j.wait(j.done); err != nil {
		return nil, true, err
	}
	return j.result, true, j.err
}

// ended waits for the end, or for being left behind. It looks first, so that a timeout of 0 asks without waiting.
func (j *Job) ended(timeout time.Duration) bool {
	select {
	case <-j.done:
		return true
	case <-j.left:
		return true
	default:
	}
	var expired <-chan time.Time
	if timeout >= 0 {
		t := time.NewTimer(timeout)
		defer t.Stop()
		expired = t.C
	}
	select {
	case <-j.done:
		return true
	case <-j.left:
		return true
	case <-expired:
		return false
	}
}

// Close cancels the work and waits for its end; it fails if that does not come.
func (j *Job) Close() error {
	j.Cancel()
	return j.wait(j.done)
}
