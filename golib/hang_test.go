package redox_test

import (
	"errors"
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
