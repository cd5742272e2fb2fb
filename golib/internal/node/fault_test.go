package node

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/plan"
	"github.com/redox-loader/redox/golib/internal/store"
	"github.com/redox-loader/redox/golib/internal/store/storetest"
)

// faulty opens the data set over files that misbehave.
func (d *dataset) faulty(io store.IO) (*storetest.Faulty, store.Source) {
	names := make([]string, len(d.manifest.Shards))
	for i, s := range d.manifest.Shards {
		names[i] = s.Name
	}
	f := &storetest.Faulty{Files: store.NewLocal(d.dir, names, io, 0)}
	return f, store.NewFlat(f, extents{&d.index})
}

// flip changes bytes of a chunk on disk, counted from its start.
func (d *dataset) flip(t *testing.T, c int, off int64) {
	t.Helper()
	e := d.index.Entries[c]
	path := filepath.Join(d.dir, d.manifest.Shards[e.Shard].Name)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[int64(e.Offset)+off] ^= 0x10
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
}

// payload is where the samples of a chunk begin.
func (d *dataset) payload(c int) int64 {
	return int64(chunk.HeaderSize) + int64(d.index.Entries[c].TableBytes)
}

// TestEveryFlippedByteIsFound flips bytes all over a chunk: what is delivered is right, or a typed error names the
// place, and the good samples of a damaged payload are delivered before.
func TestEveryFlippedByteIsFound(t *testing.T) {
	for _, codec := range []chunk.Codec{chunk.None, chunk.LZ4} {
		s := mixedShape(t, 40, 10)
		s.codec = codec
		pristine := write(t, s)
		stored := int64(pristine.index.Entries[2].Stored)
		p := pristine.plan(t, plan.Spec{})
		for off := int64(0); off < stored; off += 13 {
			d := pristine
			d.flip(t, 2, off)
			e := d.engine(t, d.source(store.Buffered), 1<<20)
			r := newRun(t, e, RunConfig{Plan: p, World: oneRank(4), Prefetch: 2, Once: true})
			if err := r.Start(0, 0); err != nil {
				t.Fatal(err)
			}
			good, err := 0, error(nil)
			for err == nil {
				var b Batch
				var slot *Slot
				if slot, err = r.Acquire(&b, -1); err == nil {
					d.check(t, &b)
					good += b.N
					slot.Release()
				}
			}
			var f *fault.Error
			if !errors.As(err, &f) || f.Kind != fault.Corrupt || f.Chunk != 2 || f.Shard != 0 {
				t.Fatalf("byte %d flipped: %v", off, err)
			}
			if good < 20 || off >= d.payload(2) && f.Sample < 20 {
				t.Fatalf("byte %d flipped: %d samples came, the error names %d", off, good, f.Sample)
			}
			r.Close()
			d.flip(t, 2, off)
		}
	}
}

// TestSkip: corrupt samples are replaced by their neighbours in the batch, counted, logged with number and key.
func TestSkip(t *testing.T) {
	for name, s := range map[string]shape{"fixed": fixedShape(t, 40, 10, 64), "mixed": mixedShape(t, 40, 10)} {
		for _, prefetch := range []int{0, 2} {
			d := write(t, s)
			d.flip(t, 1, d.payload(1)) // sample 10, the first of a batch of 5
			d.flip(t, 3, 0)            // all of chunk 3
			var mu sync.Mutex
			var lines []string
			rd := NewReader(d.source(store.Buffered), d.schema, &d.index, 0)
			e, err := NewEngine(rd, 1<<20, func(level, m string) {
				mu.Lock()
				lines = append(lines, m)
				mu.Unlock()
			})
			if err != nil {
				t.Fatal(err)
			}
			rd.Close()
			r := newRun(t, e, RunConfig{Plan: d.plan(t, plan.Spec{}), World: oneRank(5), Prefetch: prefetch, SkipErrors: true,
				MaxSkipped: 3})
			if err := r.Start(0, 0); err != nil {
				t.Fatal(err)
			}
			var got []int64
			for range 6 {
				b, _ := d.next(t, r, prefetch == 0)
				got = append(got, b...)
			}
			want := []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29}
			if !slices.Equal(got, want) {
				t.Fatalf("%s: got %v", name, got)
			}
			mem := d.memory(5, r.rec)
			if err := r.Next(&mem, -1); fault.KindOf(err) != fault.Corrupt {
				t.Errorf("a batch without a good sample: %v", err)
			}
			epoch, _ := r.Stats()
			if epoch.Skipped < 1 {
				t.Error("skipped samples were not counted")
			}
			mu.Lock()
			if len(lines) == 0 || !strings.Contains(lines[0], `sample 10 (key "1010") of shard 0, chunk 1`) {
				t.Errorf("log: %q", lines)
			}
			mu.Unlock()
			r.Close()
			e.Close()
		}
	}
}

// TestTruncatedShard: the error names chunk, shard and file.
func TestTruncatedShard(t *testing.T) {
	d := write(t, fixedShape(t, 100, 10, 1000))
	path := filepath.Join(d.dir, d.manifest.Shards[1].Name)
	if err := os.Truncate(path, 30000); err != nil {
		t.Fatal(err)
	}
	e := d.engine(t, d.source(store.Buffered), 1<<20)
	r := newRun(t, e, RunConfig{Plan: d.plan(t, plan.Spec{}), World: oneRank(10), Prefetch: 2})
	if err := r.Start(0, 0); err != nil {
		t.Fatal(err)
	}
	err := error(nil)
	for err == nil {
		var b Batch
		var s *Slot
		if s, err = r.Acquire(&b, -1); err == nil {
			s.Release()
		}
	}
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != fault.Corrupt || f.Shard != 1 || f.Chunk < 5 || f.Path != path {
		t.Errorf("got %+v", err)
	}
}

// TestStallNamesWhatItWaitsFor: storage that stands still ends in a timeout that names chunk and file; when it moves
// again, so does the run. In virtual time.
func TestStallNamesWhatItWaitsFor(t *testing.T) {
	d := write(t, fixedShape(t, 60, 10, 100))
	for _, prefetch := range []int{0, 2} {
		synctest.Test(t, func(t *testing.T) {
			f, source := d.faulty(store.Buffered)
			var gate sync.Mutex
			f.Fail = func(file uint32, off int64, _ int) error { return nil }
			f.Delay = 200 * time.Second
			_ = &gate
			e := d.engine(t, source, 1<<20)
			r := newRun(t, e, RunConfig{Plan: d.plan(t, plan.Spec{}), World: oneRank(10), Prefetch: prefetch, Timeout: 120 * time.Second})
			if err := r.Start(0, 0); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			mem := d.memory(10, r.rec)
			err := r.Next(&mem, -1)
			if took := time.Since(begin); fault.KindOf(err) != fault.TimedOut || took != 120*time.Second {
				t.Errorf("after %v: %v", took, err)
			}
			for _, part := range []string{"chunk 0", "00000.rdx", "reads in flight", "120.0 s"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the message lacks %q: %v", part, err)
				}
			}
			if err := r.Next(&mem, -1); err != nil || mem.Index[9] != 9 {
				t.Errorf("after the stall: %v", err)
			}
			if epoch, _ := r.Stats(); epoch.WaitStorage < 190*time.Second {
				t.Errorf("waits were attributed as %+v", epoch)
			}
			r.Close()
		})
	}
}

// TestCancelWakes: a blocked call returns at once, and the run goes on afterwards.
func TestCancelWakes(t *testing.T) {
	d := write(t, fixedShape(t, 60, 10, 100))
	for _, prefetch := range []int{0, 2} {
		synctest.Test(t, func(t *testing.T) {
			f, source := d.faulty(store.Buffered)
			f.Delay = time.Minute
			e := d.engine(t, source, 1<<20)
			r := newRun(t, e, RunConfig{Plan: d.plan(t, plan.Spec{}), World: oneRank(10), Prefetch: prefetch, Timeout: time.Hour})
			if err := r.Start(0, 0); err != nil {
				t.Fatal(err)
			}
			go func() {
				time.Sleep(time.Second)
				r.Cancel()
			}()
			mem, begin := d.memory(10, r.rec), time.Now()
			if err := r.Next(&mem, -1); fault.KindOf(err) != fault.Canceled || time.Since(begin) != time.Second {
				t.Errorf("canceled after %v: %v", time.Since(begin), err)
			}
			if err := r.Next(&mem, -1); err != nil || !bytes.Equal(mem.Fields[1].Data[:1], []byte{0}) {
				t.Errorf("after cancel: %v", err)
			}
			go func() {
				time.Sleep(time.Second)
				r.Close()
			}()
			for {
				if err := r.Next(&mem, -1); err != nil {
					if fault.KindOf(err) != fault.BadHandle && !ended(err) {
						t.Errorf("closed while waiting: %v", err)
					}
					break
				}
			}
			r.Close()
		})
	}
}

// TestHangingReadDoesNotHoldUpClose: early stop with reads that never return leaves no goroutine (synctest would
// complain) and no memory.
func TestEarlyStopFreesEverything(t *testing.T) {
	d := write(t, variableShape(t, 400, 10))
	synctest.Test(t, func(t *testing.T) {
		f, source := d.faulty(store.Buffered)
		e := d.engine(t, source, 1<<20)
		for i := range 5 {
			r := newRun(t, e, RunConfig{Plan: d.plan(t, plan.Spec{Shuffle: true, Window: 8}), World: oneRank(16), Prefetch: 3})
			if err := r.Start(uint64(i), 0); err != nil {
				t.Fatal(err)
			}
			for range i {
				d.next(t, r, i%2 == 0)
			}
			if i == 4 {
				f.Lock()
				f.Hang = func(uint32, int64) bool { return true }
				f.Unlock()
			}
			r.Close()
		}
		e.mu.Lock()
		if e.reserved != (demand{}) {
			t.Errorf("reserved after all runs were closed: %+v", e.reserved)
		}
		e.mu.Unlock()
		if e.slots.Live() != 0 {
			t.Errorf("%d bytes of slots are lent", e.slots.Live())
		}
	})
}
