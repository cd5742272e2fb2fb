package store_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/store"
	"github.com/redox-loader/redox/golib/internal/store/storetest"
)

func local(t *testing.T, contents [][]byte, io store.IO, total int64) store.Files {
	t.Helper()
	dir := t.TempDir()
	var names []string
	for i, b := range contents {
		names = append(names, fmt.Sprintf("%d.rdx", i))
		if err := os.WriteFile(filepath.Join(dir, names[i]), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return store.NewLocal(dir, append(names, "missing"), io, total)
}

func TestLocal(t *testing.T) {
	for name, c := range map[string]struct {
		io    store.IO
		total int64
	}{
		"buffered": {store.Buffered, 0}, "direct": {store.DirectIO, 0}, "auto small": {store.Auto, 0},
		"auto large": {store.Auto, math.MaxInt64},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Suite(t, func(t *testing.T, b [][]byte) store.Files { return local(t, b, c.io, c.total) })
		})
	}
}

func TestShortReads(t *testing.T) {
	for _, short := range []int{1000, 4096, 5000} {
		storetest.Suite(t, func(t *testing.T, b [][]byte) store.Files {
			return &storetest.Faulty{Files: local(t, b, store.Buffered, 0), Short: short}
		})
	}
}

// TestTransientFailures: a failure that passes is retried with growing pauses, one that lasts ends in a typed error,
// one that is for good is not retried.
func TestTransientFailures(t *testing.T) {
	contents := [][]byte{make([]byte, 600000)}
	files := local(t, contents, store.Buffered, 0)
	synctest.Test(t, func(t *testing.T) {
		f := &storetest.Faulty{Files: files}
		s := store.NewFlat(f, storetest.Table{{File: 0, Offset: 0, Length: 600000}})
		land := func() error {
			_, err := s.Land(t.Context(), 0, storetest.Aligned(s.Room(0)), nil)
			return err
		}
		f.Fail = func(_ uint32, _ int64, try int) error {
			if try < 2 {
				return syscall.EIO
			}
			return nil
		}
		begin := time.Now()
		if err := land(); err != nil || s.Counters().Retries == 0 {
			t.Errorf("after %d retries: %v", s.Counters().Retries, err)
		}
		if took := time.Since(begin); took < 50*time.Millisecond || took > time.Second {
			t.Errorf("pauses of %v", took)
		}
		f.Fail = func(uint32, int64, int) error { return syscall.EIO }
		err := land()
		var e *fault.Error
		if fault.KindOf(err) != fault.IO {
			t.Fatalf("lasting EIO: %v", err)
		}
		if e, _ = err.(*fault.Error); e.Errno != syscall.EIO || e.Path == "" {
			t.Errorf("error says %+v", e)
		}
		reads := f.Reads
		f.Fail = func(uint32, int64, int) error { return syscall.EACCES }
		if err := land(); fault.KindOf(err) != fault.IO || f.Reads != reads+1 {
			t.Errorf("permission denied was read %d times: %v", f.Reads-reads, err)
		}
	})
}

// TestQueueOrderAndBound: the request that is due first is read first, and no more than the pool's size at once.
func TestQueueOrderAndBound(t *testing.T) {
	var table storetest.Table
	for i := range int64(40) {
		table = append(table, store.Extent{Offset: i * 4096, Length: 4096})
	}
	files := local(t, [][]byte{make([]byte, 40*4096)}, store.Buffered, 0)
	synctest.Test(t, func(t *testing.T) {
		f := &storetest.Faulty{Files: files, Delay: time.Millisecond}
		q := store.NewQueue(store.NewFlat(f, table), 2)
		var mu sync.Mutex
		var order []int64
		var wg sync.WaitGroup
		for c := range uint32(40) {
			due := int64((c * 7) % 40)
			wg.Add(1)
			q.Submit(&store.Request{Chunk: c, Dst: storetest.Aligned(4096), Whole: true, Due: due, Done: func(_ []byte, err error) {
				if n, _ := q.InFlight(); n > 2 {
					t.Errorf("%d reads at once", n)
				}
				mu.Lock()
				order = append(order, due)
				mu.Unlock()
				wg.Done()
			}})
		}
		wg.Wait()
		// The pool may take the first two before the rest is queued; two that are read at once end in any order.
		for i, due := range order[4:] {
			if d := due - int64(i+4); d < -2 || d > 2 {
				t.Fatalf("served in the order %v", order)
			}
		}
		if !q.Close() || q.Close() == false {
			t.Error("close waited in vain")
		}
		done := false
		q.Submit(&store.Request{Done: func(_ []byte, err error) { done = fault.KindOf(err) == fault.Canceled }})
		if !done {
			t.Error("a request after close was not refused")
		}
	})
}

// TestCloseDoesNotHang: a read that hangs in storage ends with the queue, and if it cannot end, close goes on without.
func TestCloseDoesNotHang(t *testing.T) {
	files := local(t, [][]byte{make([]byte, 8192)}, store.Buffered, 0)
	synctest.Test(t, func(t *testing.T) {
		f := &storetest.Faulty{Files: files, Hang: func(uint32, int64) bool { return true }}
		q := store.NewQueue(store.NewFlat(f, storetest.Table{{Length: 4096}}), 1)
		var got error
		q.Submit(&store.Request{Dst: storetest.Aligned(4096), Whole: true, Done: func(_ []byte, err error) { got = err }})
		time.Sleep(time.Minute)
		if n, since := q.InFlight(); n != 1 || time.Since(since) != time.Minute {
			t.Errorf("%d in flight since %v", n, since)
		}
		if !q.Close() || fault.KindOf(got) != fault.Canceled {
			t.Errorf("the hanging read ended with %v", got)
		}
	})
}

// TestExternalDrain: a source that is driven from outside takes requests one by one.
func TestExternalDrain(t *testing.T) {
	q := store.NewQueue(store.NewFlat(local(t, nil, store.Buffered, 0), storetest.Table{{Length: 10}}), 0)
	var got []byte
	q.Submit(&store.Request{Dst: make([]byte, 10), Whole: true, Done: func(b []byte, err error) { got = b }})
	r, ok := q.Take()
	if !ok {
		t.Fatal("nothing to take")
	}
	q.Finish(r, func() ([]byte, error) { return r.Dst[:3], nil })
	if len(got) != 3 {
		t.Errorf("got %d bytes", len(got))
	}
	q.Close()
	if _, ok := q.Take(); ok {
		t.Error("took from a closed queue")
	}
}
