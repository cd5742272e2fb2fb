package pack_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/pack"
	"github.com/redox-loader/redox/golib/internal/pack/packtest"
)

// TestMain lets the test binary be the process that is killed.
func TestMain(m *testing.M) {
	if mode := os.Getenv("REDOX_PACK_CHILD"); mode != "" {
		if err := packAll(mode, os.Getenv("REDOX_PACK_DST"), os.Getenv("REDOX_PACK_ROOT")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// packAll packs the same data in one of several ways.
func packAll(mode, dst, root string) error {
	if mode == "large" {
		return packLarge(dst)
	}
	pack.Hasten(400<<10, 1<<20, 8<<10)
	ctx := context.Background()
	o := pack.Options{
		Schema: packtest.Schema(nil, "data", "bytes", "label", "int"), Resume: true, SourceHash: "source", ShardSize: 128 << 10, ChunkSize: 8 << 10,
		Memory: 2 << 20, Seed: 9, Codec: "auto",
	}
	switch mode {
	case "tree":
		o.Schema, o.Shuffle = chunk.Schema{}, true
		_, err := pack.Tree(ctx, dst, pack.TreeOptions{Options: o, Root: root, Format: "files"})
		return err
	case "shuffled":
		o.Shuffle = true
	case "auto": // spilled first, straight after 1 MiB
		o.ChunkSize = 0
	}
	w, err := pack.NewWriter(ctx, dst, o)
	if err != nil {
		return err
	}
	for i, s := range packtest.Numbered(1000, 2000, 7) {
		if i%3 == 0 {
			s.Vals[0].Data = bytes.Repeat([]byte{byte(i)}, 2000) // so that lz4 is chosen
		}
		if uint64(i) < w.Resumed() {
			continue
		}
		if err := w.Write(uint64(i), s.Key, s.Vals); err != nil {
			return err
		}
	}
	_, err = w.Commit()
	return err
}

// packLarge shuffles 100 MB in 1 MiB of memory.
func packLarge(dst string) error {
	w, err := pack.NewWriter(context.Background(), dst, pack.Options{
		Schema: packtest.Schema(nil, "data", "bytes"), Shuffle: true, Memory: 1 << 20, ChunkSize: 64 << 10,
	})
	if err != nil {
		return err
	}
	data := make([]byte, 3000)
	for i := range uint64(33_000) {
		data[i%3000]++
		if err := w.Write(i, "", []chunk.Value{{Data: data}}); err != nil {
			return err
		}
	}
	_, err = w.Commit()
	return err
}

// A data set of 100 times the memory is shuffled in that memory; what a Go process takes by itself is beside it.
func TestMemoryIsBounded(t *testing.T) {
	if race {
		t.Skip("the race detector's memory is larger")
	}
	dir := t.TempDir()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "REDOX_PACK_CHILD=large", "REDOX_PACK_DST="+dir, "GOGC=100")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	peak := c.ProcessState.SysUsage().(*syscall.Rusage).Maxrss >> 10
	t.Logf("peak %d MiB", peak)
	if limit := int64(40); peak > limit {
		t.Errorf("packing 100 MB in 1 MiB took %d MiB at its peak, at most %d", peak, limit)
	}
	if d := packtest.Open(t, dir); d.Manifest.Samples != 33_000 {
		t.Errorf("%d samples", d.Manifest.Samples)
	}
}

// contentsOf is all files below a directory.
func contentsOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		all[name] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Killed again and again at any moment, packing ends with the bytes of an undisturbed run; in between nothing opens,
// and no shard that the journal calls finished is written again.
func TestKilledPackingResumes(t *testing.T) {
	files := make(map[string]string)
	for i := range 1000 {
		files[fmt.Sprintf("%d/%d", i%10, i)] = fmt.Sprintf("%02000d", i)
	}
	root := tree(t, files)
	seed := uint64(time.Now().UnixNano())
	for _, mode := range []string{"shuffled", "straight", "auto", "tree"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			want := filepath.Join(t.TempDir(), "want")
			child(t, mode, want, root, 0)
			got := filepath.Join(t.TempDir(), "got")
			r := rand.New(rand.NewPCG(seed, 0))
			finished := make(map[string]time.Time)
			kills, useful := 0, 0
			step := 8
			if race { // under which a process takes half a second to start
				step = 300
			}
			for limit := 2 * step; child(t, mode, got, root, time.Duration(1+r.IntN(limit))*time.Millisecond); kills++ {
				limit += step // in the end it gets through, on slow machines too
				if _, err := chunk.Open(packtest.Files(got)); err == nil {
					continue // killed after it was published
				} else if !errors.Is(err, fault.Of(fault.NotDataset)) {
					t.Fatalf("seed %d, after kill %d: %v", seed, kills, err)
				}
				for name := range pack.Finished(got) {
					info, err := os.Stat(filepath.Join(got, name))
					if err != nil {
						t.Fatal(err)
					}
					if before, known := finished[name]; known && !before.Equal(info.ModTime()) {
						t.Errorf("seed %d, after kill %d: %s was written again", seed, kills, name)
					} else if !known {
						finished[name] = info.ModTime()
						useful++
					}
				}
			}
			t.Logf("%d kills, %d shards finished before a kill", kills, useful)
			a, b := contentsOf(t, want), contentsOf(t, got)
			for name := range a {
				if a[name] != b[name] {
					t.Errorf("seed %d, %d kills: %s differs: %d and %d bytes", seed, kills, name, len(a[name]), len(b[name]))
				}
			}
			if len(a) != len(b) {
				t.Errorf("seed %d: %d and %d files", seed, len(a), len(b))
			}
		})
	}
}

// child packs in a process of its own and kills it after a while; false if it ended by itself. 0: no kill.
func child(t *testing.T, mode, dst, root string, after time.Duration) (killed bool) {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "REDOX_PACK_CHILD="+mode, "REDOX_PACK_DST="+dst, "REDOX_PACK_ROOT="+root)
	var out bytes.Buffer
	c.Stderr = &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if after > 0 {
		go func() { // once it has begun: its start takes longer than most kills' delay
			for begun := time.Now(); time.Since(begun) < 5*time.Second; time.Sleep(time.Millisecond) {
				if _, err := os.Stat(filepath.Join(dst, chunk.WorkDir)); err == nil {
					break
				}
			}
			time.Sleep(after)
			_ = c.Process.Kill()
		}()
	}
	if err := c.Wait(); err != nil {
		var exit *exec.ExitError
		if after > 0 && errors.As(err, &exit) && exit.ExitCode() < 0 {
			return true
		}
		t.Fatalf("%v: %s", err, out.Bytes())
	}
	return false
}
