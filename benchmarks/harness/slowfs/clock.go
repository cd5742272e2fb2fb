package main

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// now returns the monotonic clock in nanoseconds, as sleepUntil takes it.
func now() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}

// sleepUntil blocks the thread until an absolute time. The runtime's own timers share one queue with everything else and
// come late on a busy machine; this one is the kernel's, for a thread that runs before all others.
func sleepUntil(t int64) {
	when := unix.NsecToTimespec(t)
	for t > now() {
		if err := unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &when, nil); err != unix.EINTR {
			return
		}
	}
}

// A pipe is something that only one request can use at a time: a link, a disk's head, a metadata server. It keeps the
// time at which it is free again, not a queue, so what one request oversleeps is not added to the next one.
type pipe struct {
	mu          sync.Mutex
	free        int64   // when, in nanoseconds
	nanoseconds float64 // that a unit of work takes
}

// newPipe returns a pipe that does so many units in a second; nil, which never makes anybody wait, for 0.
func newPipe(perSecond float64) *pipe {
	if perSecond <= 0 {
		return nil
	}
	return &pipe{nanoseconds: 1e9 / perSecond}
}

// reserve returns when the pipe is done with so many units and some time more, if it can begin at from.
func (p *pipe) reserve(from int64, units float64, more int64) int64 {
	if p == nil {
		return from + more
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = max(from, p.free) + int64(units*p.nanoseconds) + more
	return p.free
}

// counters are what the emulator did, and how long it wanted to wait and really waited for it.
type counters struct {
	opens, reads, jumps, bytes, want, got atomic.Int64
}

// wait ends at the given time, and notes how long that should have taken and took. Who need not wait is not late either.
func (c *counters) wait(begun, until int64) {
	if until <= begun {
		return
	}
	c.want.Add(until - begun)
	sleepUntil(until)
	c.got.Add(now() - begun)
}
