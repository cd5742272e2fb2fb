// Package storetest has what tests of the engine need from storage: one suite that every kind of files must pass, and
// files that misbehave on demand. It is imported by tests only.
package storetest

import (
	"context"
	"sync"
	"time"

	"github.com/redox-loader/redox/golib/internal/store"
)

// Faulty is a set of files that misbehaves. Its fields may be changed between reads, under Lock.
type Faulty struct {
	store.Files
	sync.Mutex

	Short int           // at most so many bytes a read; 0: as many as the files below give
	Delay time.Duration // of every read
	// Fail is asked before each read, with how often this offset was read before; an error ends the read.
	Fail func(file uint32, off int64, try int) error
	// Flip is asked with each read; a true answer flips a bit of what was read.
	Flip func(file uint32, off int64, try int) bool
	// Hang is asked before each read; a true answer makes it wait until the source is closed, as a dead network disk does.
	Hang func(file uint32, off int64) bool

	Reads   int // so far
	Arounds int // calls of Around
	tries   map[[2]int64]int
}

// Around implements store.Files.
func (f *Faulty) Around(file uint32, off, n int64) {
	f.Lock()
	f.Arounds++
	f.Unlock()
	f.Files.Around(file, off, n)
}

// ReadAt implements store.Files.
func (f *Faulty) ReadAt(ctx context.Context, file uint32, off int64, dst []byte, whole bool) (int, store.How, error) {
	f.Lock()
	f.Reads++
	if f.tries == nil {
		f.tries = map[[2]int64]int{}
	}
	key := [2]int64{int64(file), off}
	try := f.tries[key]
	f.tries[key]++
	var err error
	if f.Fail != nil {
		err = f.Fail(file, off, try)
	}
	flip := f.Flip != nil && f.Flip(file, off, try)
	hang := f.Hang != nil && f.Hang(file, off)
	delay, short := f.Delay, f.Short
	f.Unlock()
	if hang {
		<-ctx.Done()
		return 0, store.Plain, context.Cause(ctx)
	}
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return 0, store.Plain, context.Cause(ctx)
		}
	}
	if err != nil {
		return 0, store.Plain, err
	}
	if short > 0 {
		dst = dst[:min(len(dst), short)]
	}
	n, how, err := f.Files.ReadAt(ctx, file, off, dst, whole)
	if flip && n > 0 {
		dst[n/2] ^= 4
	}
	return n, how, err
}
