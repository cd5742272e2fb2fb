package redox_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	redox "github.com/redox-loader/redox/golib"
	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/pack/packtest"
)

// hung is a data set whose storage stands still: opening its shards never returns, until release.
func hung(t *testing.T) (d *redox.Dataset, release func()) {
	t.Helper()
	dir := t.TempDir() + "/d"
	packtest.Build(t, dir, packtest.Schema(t, "data", "bytes", "label", "int"), packtest.Numbered(samples, size, 7)...)
	d, err := redox.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	shards, _ := filepath.Glob(dir + "/shards/*")
	if len(shards) == 0 {
		t.Fatal("no shards")
	}
	for _, s := range shards {
		if err := errors.Join(os.Remove(s), unix.Mkfifo(s, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { d.Close() })
	return d, func() {
		for _, s := range shards {
			f, err := os.OpenFile(s, os.O_RDWR, 0) // lets those who open it for reading go on; reading at an offset fails
			if err != nil {
				t.Error(err)
				continue
			}
			t.Cleanup(func() { f.Close() })
		}
	}
}

// Of two calls that wait, each ends at its own timeout, and Cancel wakes both.
func TestCallsThatWaitForOthers(t *testing.T) {
	d, release := hung(t)
	l := loader(t, d, `{"batch_size": 16, "timeout": 60, "io": "buffered"}`)
	ends := make(chan error, 2)
	wait := func() { ends <- l.NextBatch(buffers(16), -1) }
	go wait()
	time.Sleep(50 * time.Millisecond)
	begin := time.Now()
	if err := l.NextBatch(buffers(16), 50*time.Millisecond); !errors.Is(err, fault.Of(fault.TimedOut)) {
		t.Errorf("behind a call that waits: %v", err)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("50 ms took %v", took)
	}
	go wait()
	time.Sleep(50 * time.Millisecond)
	l.Cancel()
	for range 2 {
		select {
		case err := <-ends:
			if !errors.Is(err, fault.Of(fault.Canceled)) {
				t.Errorf("canceled: %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("Cancel did not wake every call")
		}
	}
	release()
	l.Close()
}

// Closing does not wait for storage that stands still.
func TestCloseWithHungStorage(t *testing.T) {
	d, release := hung(t)
	l := loader(t, d, `{"batch_size": 16, "prefetch": 2, "io": "buffered"}`)
	if err := l.NextBatch(buffers(16), 20*time.Millisecond); !errors.Is(err, fault.Of(fault.TimedOut)) {
		t.Errorf("got %v", err)
	}
	begin := time.Now()
	l.Close()
	if took := time.Since(begin); took > 8*time.Second {
		t.Errorf("took %v", took)
	}
	release()
}

// within fails if a call takes longer than anybody would wait for, though not as long as storage that stands still.
func within(t *testing.T, what string, call func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- call() }()
	select {
	case err := <-done:
		if !errors.Is(err, fault.Of(fault.Canceled)) {
			t.Errorf("%s: %v", what, err)
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("%s waits for ever", what)
	}
}

// A job whose reads never return is left behind once it was canceled: by who waits, and by who closes it.
func TestJobWithHungStorage(t *testing.T) {
	d, release := hung(t)
	for _, wait := range []bool{true, false} {
		j, err := redox.NewJob("verify", fmt.Appendf(nil, `{"path": %q}`, pathOf(t, d)))
		if err != nil {
			t.Fatal(err)
		}
		if _, done, err := j.Wait(20 * time.Millisecond); done || err != nil {
			t.Fatalf("it has ended: %v", err)
		}
		if wait {
			go func() {
				time.Sleep(20 * time.Millisecond)
				j.Cancel()
			}()
			within(t, "wait", func() error {
				_, done, err := j.Wait(-1)
				if !done {
					t.Error("not done")
				}
				return err
			})
		}
		within(t, "close", j.Close)
	}
	release()
}

// A writer whose writes never return can be canceled and aborted, from other goroutines and in any order.
func TestWriterWithHungStorage(t *testing.T) {
	for _, commit := range []bool{true, false} {
		dir := t.TempDir() + "/d"
		w, err := redox.NewWriter(dir, []byte(`{"fields": {"x": "bytes"}, "layout": "dict"}`))
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write([]redox.Value{{Data: []byte("x")}}); err != nil {
			t.Fatal(err)
		}
		spill := dir + "/.redox-pack/spill"
		for i := range 1000 { // more than there are buckets; opening one to write never returns
			if err := unix.Mkfifo(fmt.Sprintf("%s/%03d", spill, i), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if commit {
			go func() {
				time.Sleep(20 * time.Millisecond)
				w.Cancel()
			}()
			within(t, "commit", w.Commit)
			within(t, "write", func() error { return w.Write([]redox.Value{{Data: []byte("x")}}) })
			within(t, "abort", w.Abort)
		} else {
			go func() { _ = w.Commit() }()
			time.Sleep(50 * time.Millisecond)
			within(t, "abort", w.Abort)
		}
		fifos, _ := filepath.Glob(spill + "/*")
		for _, name := range fifos {
			f, err := os.OpenFile(name, os.O_RDWR, 0) // lets it go on, so that the test leaves nothing behind
			if err == nil {
				t.Cleanup(func() { f.Close() })
			}
		}
	}
}
