package redox

import (
	"context"
	"runtime/debug"
	"sync"
	"time"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// leaveAfter is how long work that was canceled may take to end. A read or write on a dead network disk never returns,
// and nothing can end the goroutine that is in it: it is left behind, with the files it has open and the lock on the data
// set, and whoever waited goes on. There is at most one such goroutine for each job and writer, beside the bounded ones
// that it has started itself.
const leaveAfter = time.Second

// cancelable is work that can be canceled and, if it does not end then, be left behind.
type cancelable struct {
	ctx  context.Context
	stop context.CancelFunc
	once sync.Once
	left chan struct{} // closed leaveAfter after Cancel
}

func newCancelable() *cancelable {
	c := &cancelable{left: make(chan struct{})}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// Cancel asks the work to stop soon. Whoever waits for it returns soon, whether it does or not.
func (c *cancelable) Cancel() {
	c.once.Do(func() {
		c.stop()
		time.AfterFunc(leaveAfter, func() { close(c.left) })
	})
}

// wait waits until done is closed, or can be received from; it fails when the work was left behind.
func (c *cancelable) wait(done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	default:
	}
	select {
	case <-done:
		return nil
	case <-c.left:
		return fault.New(fault.Canceled, "canceled, but a read or write has not returned for %v: storage stands still, and the work is left "+
			"behind as it is", leaveAfter)
	}
}

// run does work on a goroutine of its own and waits for it.
func (c *cancelable) run(work func() error, after func()) error {
	var err error
	done := make(chan struct{})
	go func() {
		defer after()
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				err = fault.New(fault.Internal, "panic: %v\n%s", p, debug.Stack())
			}
		}()
		err = work()
	}()
	if left := c.wait(done); left != nil {
		return left
	}
	if err != nil && c.ctx.Err() != nil && fault.KindOf(err) != fault.Canceled {
		return fault.Wrap(fault.Canceled, err, "canceled")
	}
	return err
}
