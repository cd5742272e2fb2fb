package pack

import (
	"context"
	"math"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
)

// A checkpoint of the spill is due after so many bytes or so long; what came after the last one is done again after a
// kill. Variables for tests.
var (
	checkpointBytes uint64 = 256 << 20
	checkpointTime         = 10 * time.Second
)

// Writer packs samples that come one by one. With Shuffle they are spilled to disk first and sorted by Commit. Without
// they go straight into shards, except that with an automatic chunk size the first 4 GiB are spilled too, as their
// total decides the size. One goroutine at a time. It must be ended by Commit or Abort.
type Writer struct {
	r        *run
	existing *chunk.Manifest // of a complete data set: nothing is to be done
	spill    *spill          // nil: straight from the start
	straight bool            // samples go to chunks
	builder  *chunk.Builder  // the open chunk
	filled   uint64          // source after the last sample of it
	next     uint64          // the smallest source number that may come
	resumed  uint64
	scratch  []byte
	err      error // of storage; everything after it fails alike
	ended    bool

	noted     bool   // the journal knows of the spill
	saved     uint64 // raw bytes at the last checkpoint
	savedTime time.Time
	dropTo    atomic.Uint64 // samples in finished shards
}

// NewWriter starts or resumes a data set in dst. If a complete one of the same SourceHash and options is there, Write
// does nothing and Commit returns it.
func NewWriter(ctx context.Context, dst string, o Options) (*Writer, error) {
	r, existing, err := newRun(ctx, dst, o)
	if err != nil {
		return nil, err
	}
	w := &Writer{r: r, existing: existing, savedTime: time.Now()}
	if existing != nil {
		for _, p := range existing.Parts {
			w.resumed = max(w.resumed, p.Sources)
		}
		w.next = w.resumed
		return w, nil
	}
	if err := w.open(); err != nil {
		return nil, r.stop(err)
	}
	return w, nil
}

// open restores the input side: the spill, and where the source goes on.
func (w *Writer) open() error {
	before := &w.r.t.before
	w.next = w.r.resumed.Next
	if w.r.o.Shuffle || w.r.o.ChunkSize == 0 {
		w.spill = newSpill(w.r.t.spillDir(), w.r.o.Seed, w.r.o.Shuffle, w.r.o.Memory)
		w.r.asm.onShard = func(d done) { w.dropTo.Store(d.Samples) }
		if before.spilled != nil {
			if err := w.spill.restore(*before.spilled); err != nil {
				return err
			}
			w.saved, w.noted = before.spilled.Raw, true
			w.next = max(w.next, before.spilled.Next)
		}
	}
	w.resumed = w.next
	if w.r.last || w.spill != nil && !w.spill.total.Sealed {
		return nil
	}
	if w.spill != nil && w.r.o.Shuffle {
		return nil // Commit sorts
	}
	return w.goStraight()
}

// Existing is the complete data set that was found, or nil.
func (w *Writer) Existing() *chunk.Manifest { return w.existing }

// Resumed is the source number to go on with: all before are safely taken by an earlier run. Write ignores them.
func (w *Writer) Resumed() uint64 { return w.resumed }

// Write takes a copy of one sample. Source numbers ascend. A sample that doesn't fit the schema (fault.Invalid) is not
// taken, and the writer stays usable; after any other error only Abort is left.
func (w *Writer) Write(source uint64, key string, vals []chunk.Value) error {
	switch {
	case w.ended:
		return fault.New(fault.Invalid, "write after commit or abort")
	case w.err != nil:
		return w.err
	case source > math.MaxInt64: // readers have int64 for it, and the next number must not wrap
		return fault.New(fault.Invalid, "source %d: expected at most %d", source, math.MaxInt64)
	case source < w.resumed || w.existing != nil:
		return nil
	case source < w.next:
		return fault.New(fault.Invalid, "source %d after source %d: source numbers must ascend", source, w.next-1)
	case len(key) > chunk.MaxKey:
		return fault.New(fault.Invalid, "key of %d bytes, at most %d", len(key), chunk.MaxKey)
	case !utf8.ValidString(key):
		return fault.New(fault.Invalid, "key %q of source %d is not UTF-8", key, source)
	case w.r.last || w.spill != nil && w.spill.total.Sealed && !w.straight:
		return fault.New(fault.Invalid, "source %d: the source has more samples than when it was packed before", source)
	}
	raw, err := w.r.layout.AppendSample(w.scratch[:0], vals)
	w.scratch = raw
	if err != nil {
		return err
	}
	if err := w.r.layout.CheckText(vals); err != nil {
		return err
	}
	w.next = source + 1
	if w.straight {
		w.err = w.feed(source, key, raw)
	} else {
		w.err = w.keep(source, key, raw)
	}
	if cap(w.scratch) > 64<<20 {
		w.scratch = nil
	}
	return w.err
}

// keep spills a sample.
func (w *Writer) keep(source uint64, key string, raw []byte) error {
	if w.r.asm.ctx.Err() != nil {
		return w.r.asm.err()
	}
	if err := w.spill.add(source, key, raw); err != nil {
		return err
	}
	if !w.r.o.Shuffle && w.spill.total.Raw >= straightAfter {
		if err := w.seal(); err != nil {
			return err
		}
		return w.goStraight()
	}
	if fresh := w.spill.total.Raw - w.saved; fresh >= checkpointBytes || time.Since(w.savedTime) >= checkpointTime {
		return w.checkpoint(false)
	}
	return nil
}

func (w *Writer) checkpoint(sealed bool) error {
	note, err := w.spill.checkpoint(sealed)
	if err != nil {
		return err
	}
	w.saved, w.savedTime, w.noted = note.Raw, time.Now(), true
	return w.r.t.journal.note(line{Spilled: note})
}

// seal ends the spill: what is in it can be handed out. If no checkpoint was ever due, none is made, and the rest of
// the run is not noted either: syncing a hundred files would take longer than doing it again.
func (w *Writer) seal() (err error) {
	switch {
	case w.spill.total.Sealed:
		return nil
	case w.noted || w.spill.total.Raw >= checkpointBytes:
		err = w.checkpoint(true)
	default:
		w.r.t.journal.quiet, w.spill.total.Sealed = true, true
		err = w.spill.flush(false)
	}
	w.spill.close()
	return err
}

// goStraight hands out the spill, and lets all further samples go to chunks directly.
func (w *Writer) goStraight() error {
	w.straight = true
	if w.spill == nil {
		return nil
	}
	for i := range w.spill.buckets {
		w.spill.buckets[i].tail = nil
	}
	return w.spill.each(w.r.resumed.Samples, func(s spillSample) error {
		if n := w.dropTo.Swap(0); n > 0 {
			w.spill.drop(n)
		}
		return w.feed(s.source, s.key, s.raw)
	})
}

// size is the chunk size, once it can be known.
func (w *Writer) size() int64 {
	switch {
	case w.r.begun:
		return w.r.decided.ChunkSize
	case w.r.o.ChunkSize > 0:
		return w.r.o.ChunkSize
	}
	return chunkSize(w.spill.total.Raw)
}

// feed puts a sample into the open chunk, or into the next if it doesn't belong there.
func (w *Writer) feed(source uint64, key string, raw []byte) error {
	if w.builder != nil && !w.builder.Takes(uint64(len(raw)), len(key), w.size()) {
		if err := w.submit(); err != nil {
			return err
		}
	}
	if w.builder == nil {
		var err error
		if w.builder, err = w.r.asm.builder(); err != nil {
			return err
		}
	}
	w.builder.Add(source, key, append(w.builder.Buffer(), raw...))
	w.filled = source + 1
	return nil
}

func (w *Writer) submit() error {
	if !w.r.begun {
		codec, reason, err := w.r.choose(w.builder)
		if err != nil {
			return err
		}
		if err := w.r.begin(w.size(), codec, reason); err != nil {
			return err
		}
	}
	w.r.asm.submit(&job{builder: w.builder, next: w.filled})
	w.builder = nil
	return nil
}

// Commit sorts, writes the rest and publishes. After an error nothing opens as a data set.
func (w *Writer) Commit() (chunk.Manifest, error) {
	if w.ended {
		return chunk.Manifest{}, fault.New(fault.Invalid, "commit after commit or abort")
	}
	w.ended = true
	if w.existing != nil {
		return *w.existing, nil
	}
	if err := w.rest(); err != nil {
		w.closeSpill()
		return chunk.Manifest{}, w.r.stop(err)
	}
	w.closeSpill()
	return w.r.finish(w.next)
}

func (w *Writer) rest() error {
	if w.err != nil || w.r.last {
		return w.err
	}
	if w.spill != nil && !w.straight && w.spill.total.Samples > 0 {
		if err := w.seal(); err != nil {
			return err
		}
		if err := w.goStraight(); err != nil {
			return err
		}
	}
	if w.builder == nil {
		return nil
	}
	return w.submit()
}

func (w *Writer) closeSpill() {
	if w.spill != nil {
		w.spill.close()
	}
}

// Abort ends the writer without a data set. What is done stays on disk if it can be resumed (Options.Resume and a
// SourceHash), else all of it goes.
func (w *Writer) Abort() error {
	if w.ended {
		return nil
	}
	w.ended = true
	if w.existing != nil {
		return nil
	}
	if w.spill != nil && w.err == nil && !w.spill.total.Sealed && w.r.o.Resume && w.r.identity != "" {
		_ = w.checkpoint(false) // best effort: the next run takes up what is noted
	}
	w.closeSpill()
	_ = w.r.stop(errStopped)
	return nil
}
