package pack_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/pack"
	"github.com/redox-loader/redox/golib/internal/pack/packtest"
)

func errno(err error) syscall.Errno {
	var e *fault.Error
	if !errors.As(err, &e) {
		return 0
	}
	return e.Errno
}

func write(t *testing.T, w *pack.Writer, n int) {
	t.Helper()
	for i, s := range packtest.Numbered(n, 100, 3) {
		if err := w.Write(uint64(i), s.Key, s.Vals); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTargetsThatAreRefused(t *testing.T) {
	o := pack.Options{Schema: numbered(t), SourceHash: "s", Resume: true}
	full := t.TempDir()
	packtest.BuildWith(t, full, o, packtest.Numbered(5, 10, 2)...)
	foreign := tree(t, map[string]string{"thesis.txt": "years"})
	file := filepath.Join(foreign, "thesis.txt")
	other := o
	other.Seed = 1
	for name, c := range map[string]struct {
		dir string
		o   pack.Options
	}{"foreign": {foreign, o}, "a file": {file, o}, "other options": {full, other}} {
		_, err := pack.NewWriter(context.Background(), c.dir, c.o)
		if fault.KindOf(err) != fault.Invalid || errno(err) != syscall.EEXIST {
			t.Errorf("%s: %v", name, err)
		}
	}
	if names, _ := os.ReadDir(foreign); len(names) != 1 {
		t.Errorf("something was left in a foreign directory: %v", names)
	}
	// The same source and options: there is nothing to do.
	w, err := pack.NewWriter(context.Background(), full, o)
	if err != nil || w.Existing() == nil || w.Resumed() != 5 {
		t.Fatalf("%+v, %v", w, err)
	}
	write(t, w, 5)
	if m, err := w.Commit(); err != nil || m.Samples != 5 {
		t.Errorf("%d samples, %v", m.Samples, err)
	}
}

// Overwriting replaces the names of the format and nothing else.
func TestOverwrite(t *testing.T) {
	dir := tree(t, map[string]string{"thesis.txt": "years", "shards/notes.txt": "mine"})
	packtest.BuildWith(t, dir, pack.Options{Schema: numbered(t), Overwrite: true, ShardSize: 4 << 10, ChunkSize: 1 << 10}, packtest.Numbered(50, 500, 2)...)
	packtest.BuildWith(t, dir, pack.Options{Schema: numbered(t), Overwrite: true}, packtest.Numbered(5, 10, 2)...)
	if shards, _ := filepath.Glob(filepath.Join(dir, "shards", "*.rdx")); len(shards) != 1 {
		t.Errorf("shards of the old data set are left: %v", shards)
	}
	for _, name := range []string{"thesis.txt", "shards/notes.txt"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

func TestOnlyOneMayPack(t *testing.T) {
	dir := t.TempDir()
	o := pack.Options{Schema: numbered(t), Overwrite: true}
	w, err := pack.NewWriter(context.Background(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	_, err = pack.NewWriter(context.Background(), dir, o)
	if fault.KindOf(err) != fault.IO || errno(err) != syscall.EBUSY || !strings.Contains(err.Error(), "another process") {
		t.Errorf("second packer: %v", err)
	}
	write(t, w, 3)
	if _, err := w.Commit(); err != nil {
		t.Error(err)
	}
}

func TestHalfPackedOfAnotherSourceIsKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	o := pack.Options{Schema: numbered(t), SourceHash: "s", Resume: true, Shuffle: true}
	w, err := pack.NewWriter(context.Background(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	write(t, w, 100)
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	if _, err := chunk.Open(packtest.Files(dir)); !errors.Is(err, fault.Of(fault.NotDataset)) || !strings.Contains(err.Error(), "half-packed") {
		t.Errorf("open: %v", err)
	}
	other := o
	other.SourceHash = "another"
	if _, err := pack.NewWriter(context.Background(), dir, other); errno(err) != syscall.EEXIST {
		t.Errorf("another source: %v", err)
	}
	if w, err = pack.NewWriter(context.Background(), dir, o); err != nil || w.Resumed() != 100 {
		t.Fatalf("resumed %d, %v", w.Resumed(), err)
	}
	if m, err := w.Commit(); err != nil || m.Samples != 100 {
		t.Errorf("%d samples, %v", m.Samples, err)
	}
}

// Without a source to resume from, an aborted writer leaves nothing at all.
func TestAbortLeavesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	w, err := pack.NewWriter(context.Background(), dir, pack.Options{Schema: numbered(t), Resume: true, ChunkSize: 1 << 10, ShardSize: 4 << 10})
	if err != nil {
		t.Fatal(err)
	}
	write(t, w, 200)
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("left: %v", err)
	}
	if _, err := w.Commit(); fault.KindOf(err) != fault.Invalid {
		t.Errorf("commit after abort: %v", err)
	}
}

func TestCancelledPacking(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	w, err := pack.NewWriter(ctx, filepath.Join(t.TempDir(), "d"), pack.Options{Schema: numbered(t), ChunkSize: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	write(t, w, 10)
	cancel()
	if _, err := w.Commit(); !errors.Is(err, fault.Of(fault.Canceled)) {
		t.Errorf("%v", err)
	}
}

// A full disk is a StorageError with path and errno, and nothing that opens; with room again, packing goes on.
func TestFullDisk(t *testing.T) {
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("needs to mount a small tmpfs: %v", err)
	}
	defer unix.Unmount(disk, unix.MNT_DETACH)
	for _, shuffle := range []bool{false, true} {
		dir := filepath.Join(disk, "d")
		o := pack.Options{Schema: numbered(t), SourceHash: "s", Resume: true, ChunkSize: 8 << 10, ShardSize: 100 << 10, Shuffle: shuffle, Codec: "none"}
		w, err := pack.NewWriter(context.Background(), dir, o)
		if err != nil {
			t.Fatal(err)
		}
		samples := packtest.Numbered(600, 3000, 3)
		for i, s := range samples {
			if err = w.Write(uint64(i), s.Key, s.Vals); err != nil {
				break
			}
		}
		if err == nil {
			_, err = w.Commit()
		} else if again := w.Write(1e6, "", samples[0].Vals); again == nil {
			t.Error("a write after a failed one passed")
		}
		var e *fault.Error
		if !errors.As(err, &e) || e.Kind != fault.IO || e.Errno != syscall.ENOSPC || !strings.HasPrefix(e.Path, dir) {
			t.Errorf("%#v", err)
		}
		_ = w.Abort()
		if _, err := chunk.Open(packtest.Files(dir)); !errors.Is(err, fault.Of(fault.NotDataset)) {
			t.Errorf("open: %v", err)
		}
		if err := unix.Mount("", disk, "", unix.MS_REMOUNT, "size=10m"); err != nil {
			t.Fatal(err)
		}
		packtest.BuildWith(t, dir, o, samples...)
		if got, _ := packtest.Read(t, dir); len(got) != len(samples) {
			t.Errorf("%d samples", len(got))
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("", disk, "", unix.MS_REMOUNT, "size=1m"); err != nil {
			t.Fatal(err)
		}
	}
}
