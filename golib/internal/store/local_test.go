package store

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Who gives a hint must not wait for storage: opening this file would never return.
func TestHintsDoNotOpen(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, "f"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := NewLocal(dir, []string{"f"}, DirectIO, 0)
	defer l.Close()
	l.refused.Store(true)
	done := make(chan struct{})
	go func() {
		l.Hint(0, 0, 1)
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatal("the hint waits for the file to be opened")
	}
}

func TestOpenFilesAreBoundedAndClosed(t *testing.T) {
	dir := t.TempDir()
	for i := range 20 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), []byte{byte(i)}, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	before := descriptors(t)
	f := newOpenFiles(4, unix.FADV_NORMAL)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 200 {
				file := uint32((i*7 + w) % 20)
				o, err := f.get(file, filepath.Join(dir, fmt.Sprint(file)))
				if err != nil {
					t.Error(err)
					return
				}
				var b [1]byte
				if _, err := pread(o.fd, b[:], 0); err != nil || b[0] != byte(file) {
					t.Errorf("file %d has %d: %v", file, b[0], err)
				}
				f.put(o)
			}
		})
	}
	wg.Wait()
	if n := descriptors(t) - before; n > 4 {
		t.Errorf("%d descriptors are open, 4 are allowed when idle", n)
	}
	o, err := f.get(3, filepath.Join(dir, "3"))
	if err != nil {
		t.Fatal(err)
	}
	f.close()
	if _, err := pread(o.fd, make([]byte, 1), 0); err != nil {
		t.Errorf("a file in use was closed: %v", err)
	}
	f.put(o)
	if n := descriptors(t) - before; n != 0 {
		t.Errorf("%d descriptors are left", n)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(list)
}

func TestCgroupMemory(t *testing.T) {
	root := t.TempDir()
	put := func(path, text string) {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	put("self", "0::/a/b\n")
	put("a/b/memory.max", "max\n")
	put("a/memory.max", "1000000\n")
	put("a/memory.current", "700000\n")
	put("a/memory.stat", "anon 5\nactive_file 100\ninactive_file 20\n")
	if got := cgroupFree(filepath.Join(root, "self"), root); got != 300120 {
		t.Errorf("version 2, limit of the parent: %d free", got)
	}
	put("self1", "5:cpu,memory:/x\n1:name=systemd:/\n")
	put("memory/x/memory.limit_in_bytes", "5000\n")
	put("memory/x/memory.usage_in_bytes", "6000\n")
	if got := cgroupFree(filepath.Join(root, "self1"), root); got != 0 {
		t.Errorf("version 1, over its limit: %d free", got)
	}
	if FreeMemory() <= 0 {
		t.Error("no free memory here?")
	}
}
