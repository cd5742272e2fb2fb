package store

import (
	"context"
	"errors"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// Retry policy: five tries over about half a second. Longer outages are the business of whoever holds the deadline.
const (
	maxTries   = 5
	firstPause = 10 * time.Millisecond
	maxPause   = time.Second
)

const page = 4096

// Flat is the source of data sets whose chunks are ranges of files as they will lie in memory.
type Flat struct {
	files   Files
	extents Extents
	around  atomic.Bool

	lands, ranges, landBytes, rangeBytes, cachedBytes, directBytes, retries atomic.Int64
}

var _ Source = (*Flat)(nil)

// NewFlat returns a source over files, which it owns from then on.
func NewFlat(files Files, extents Extents) *Flat { return &Flat{files: files, extents: extents} }

// span is the page-aligned range of a file around a chunk: direct reads allow no other.
func span(e Extent) (start, head, length int64) {
	start = e.Offset &^ (page - 1)
	head = e.Offset - start
	return start, head, (head + e.Length + page - 1) &^ (page - 1)
}

// Room implements Source.
func (f *Flat) Room(chunk uint32) int64 {
	_, _, length := span(f.extents.Extent(chunk))
	return length
}

// Land implements Source. A failed read goes on where it stopped, so that the tap sees each byte once.
func (f *Flat) Land(ctx context.Context, chunk uint32, dst []byte, tap func([]byte)) ([]byte, error) {
	e := f.extents.Extent(chunk)
	start, head, length := span(e)
	end := head + e.Length // in dst
	f.lands.Add(1)
	if f.around.Load() {
		f.files.Around(e.File, start, length)
	}
	got, shown := int64(0), head
	for got < end {
		n, how, err := f.read(ctx, e.File, start+got, dst[got:length:length], true)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, f.truncated(e, start+got)
		}
		f.landBytes.Add(int64(n))
		switch how {
		case Cached:
			f.cachedBytes.Add(int64(n))
		case Direct:
			f.directBytes.Add(int64(n))
		}
		got += int64(n)
		for tap != nil && shown < min(got, end) {
			next := min(shown+Piece, got, end)
			tap(dst[shown:next])
			shown = next
		}
	}
	f.files.Done(e.File, start, length)
	return dst[head:end:end], nil
}

// Range implements Source.
func (f *Flat) Range(ctx context.Context, chunk uint32, off int64, dst []byte) error {
	e := f.extents.Extent(chunk)
	if off < 0 || off+int64(len(dst)) > e.Length {
		return fault.New(fault.Internal, "store: range %d+%d is outside of chunk %d of %d bytes", off, len(dst), chunk, e.Length)
	}
	f.ranges.Add(1)
	for got := 0; got < len(dst); {
		n, _, err := f.read(ctx, e.File, e.Offset+off+int64(got), dst[got:], false)
		if err != nil {
			return err
		}
		if n == 0 {
			return f.truncated(e, e.Offset+off+int64(got))
		}
		f.rangeBytes.Add(int64(n))
		got += n
	}
	return nil
}

// Hint implements Source.
func (f *Flat) Hint(chunk uint32) {
	e := f.extents.Extent(chunk)
	f.files.Hint(e.File, e.Offset, e.Length)
}

// Around implements Source.
func (f *Flat) Around() { f.around.Store(true) }

// read is one ReadAt, repeated while it fails in a way that may pass.
func (f *Flat) read(ctx context.Context, file uint32, off int64, dst []byte, whole bool) (int, How, error) {
	pause := firstPause
	for try := 1; ; try++ {
		if err := ctx.Err(); err != nil {
			return 0, Plain, context.Cause(ctx)
		}
		n, how, err := f.files.ReadAt(ctx, file, off, dst, whole)
		if err == nil {
			return n, how, nil
		}
		if ctx.Err() != nil {
			return 0, Plain, context.Cause(ctx)
		}
		if try == maxTries || !transient(err) {
			return 0, Plain, fault.Wrap(fault.IO, err, "read %s at %d (try %d)", f.files.Name(file), off, try).
				In(f.files.Name(file))
		}
		f.retries.Add(1)
		select {
		case <-ctx.Done():
			return 0, Plain, context.Cause(ctx)
		case <-time.After(pause):
		}
		pause = min(4*pause, maxPause)
	}
}

// transient tells failures that may pass (a hiccup of a network file system) from those that will not.
func transient(err error) bool {
	for _, e := range []error{
		syscall.EIO, syscall.EAGAIN, syscall.EINTR, syscall.ETIMEDOUT, syscall.ENOMEM, syscall.ENOBUFS, syscall.EBUSY,
		syscall.ESTALE, syscall.EREMOTEIO, syscall.ECONNRESET, syscall.ENFILE, syscall.EMFILE,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (f *Flat) truncated(e Extent, at int64) error {
	name := f.files.Name(e.File)
	return fault.New(fault.Corrupt, "%s is truncated: it ends at %d, but a chunk of it goes up to %d", name, at, e.Offset+e.Length).
		In(name).At(int64(e.File), -1, -1)
}

// Unit implements Source.
func (f *Flat) Unit() Unit { return Sample }

// Name implements Source.
func (f *Flat) Name(chunk uint32) string { return f.files.Name(f.extents.Extent(chunk).File) }

// Counters implements Source.
func (f *Flat) Counters() Counters {
	return Counters{
		Lands: f.lands.Load(), Ranges: f.ranges.Load(), LandBytes: f.landBytes.Load(), RangeBytes: f.rangeBytes.Load(),
		CachedBytes: f.cachedBytes.Load(), DirectBytes: f.directBytes.Load(), Retries: f.retries.Load(),
	}
}

// Close implements Source.
func (f *Flat) Close() error { return f.files.Close() }
