package pack_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/pack"
	"github.com/redox-loader/redox/golib/internal/pack/packtest"
)

func verify(t *testing.T, dir string, repair bool) pack.VerifyReport {
	t.Helper()
	r, err := pack.Verify(context.Background(), dir, repair, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func verified(t *testing.T) (dir string, d *chunk.Dataset) {
	t.Helper()
	dir = t.TempDir()
	d = packtest.BuildWith(t, dir, pack.Options{
		Schema: numbered(t), Codec: "lz4", ChunkSize: 2 << 10, ShardSize: 20 << 10, Classes: []string{"a", "b"}, Shuffle: true,
	}, packtest.Numbered(200, 200, 2)...)
	if len(d.Manifest.Shards) < 3 {
		t.Fatalf("%d shards", len(d.Manifest.Shards))
	}
	return dir, d
}

func flip(t *testing.T, path string, bit int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, bit/8); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1 << (bit % 8)
	if _, err := f.WriteAt(b, bit/8); err != nil {
		t.Fatal(err)
	}
}

// Verify finds any flipped bit of any file, padding included; bits are tried all over them.
func TestVerifyFindsEveryFlip(t *testing.T) {
	dir, _ := verified(t)
	if r := verify(t, dir, false); len(r.Damage) > 0 || r.Samples != 200 {
		t.Fatalf("%+v", r)
	}
	for name, data := range contentsOf(t, dir) {
		path := filepath.Join(dir, name)
		for bit := int64(5); bit < 8*int64(len(data)); bit += 8*int64(len(data))/101 + 1 {
			flip(t, path, bit)
			r, err := pack.Verify(context.Background(), dir, false, nil)
			if len(r.Damage) == 0 && err == nil {
				t.Errorf("%s, bit %d: not found", name, bit)
			}
			flip(t, path, bit)
		}
	}
}

func TestVerifyNamesTheSample(t *testing.T) {
	dir, d := verified(t)
	c := 5
	v := packtest.View(t, dir, d, c)
	at, _ := v.Range(2)
	e := d.Index.Entries[c]
	name := d.Manifest.Shards[e.Shard].Name
	flip(t, filepath.Join(dir, name), int64(8*(e.Offset+at+3)))
	r := verify(t, dir, false)
	found := false
	for _, x := range r.Damage {
		if x.Path != name || x.Shard != int64(e.Shard) {
			t.Errorf("damage elsewhere: %+v", x)
		}
		found = found || x.Chunk == int64(c) && x.Sample == int64(e.First)+2 && strings.Contains(x.What, v.Key(2))
	}
	if !found {
		t.Errorf("%+v", r.Damage)
	}
	// A missing shard is damage, not the end of the search.
	if err := os.Remove(filepath.Join(dir, d.Manifest.Shards[0].Name)); err != nil {
		t.Fatal(err)
	}
	if r := verify(t, dir, false); len(r.Damage) < 2 || r.Damage[0].Shard != 0 {
		t.Errorf("%+v", r.Damage)
	}
}

func TestRepair(t *testing.T) {
	for _, lost := range [][]string{{chunk.IndexName}, {chunk.ManifestName}, {chunk.ManifestName, chunk.IndexName}} {
		dir, _ := verified(t)
		want := contentsOf(t, dir)
		for _, name := range lost {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := chunk.Open(packtest.Files(dir)); err == nil {
			t.Error("opens without", lost)
		}
		if r := verify(t, dir, true); len(r.Repaired) == 0 {
			t.Errorf("%v: %+v", lost, r)
		}
		for name, data := range contentsOf(t, dir) {
			if data != want[name] {
				t.Errorf("lost %v: %s is not as it was", lost, name)
			}
		}
		if r := verify(t, dir, false); len(r.Damage) > 0 {
			t.Errorf("%+v", r.Damage)
		}
	}
}

// Without its last shard, or half-packed, nothing may be repaired into a smaller data set.
func TestRepairRefusesWhatIsNotWhole(t *testing.T) {
	dir, d := verified(t)
	last := d.Manifest.Shards[len(d.Manifest.Shards)-1].Name
	for _, name := range []string{chunk.ManifestName, last} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pack.Verify(context.Background(), dir, true, nil); !errors.Is(err, fault.Of(fault.Corrupt)) {
		t.Errorf("%v", err)
	}
	if _, err := pack.Verify(context.Background(), t.TempDir(), false, nil); !errors.Is(err, fault.Of(fault.NotDataset)) {
		t.Errorf("%v", err)
	}
}

func TestVerifyCanBeStopped(t *testing.T) {
	dir, _ := verified(t)
	ctx, cancel := context.WithCancel(context.Background())
	_, err := pack.Verify(ctx, dir, false, func(done, total uint64) { cancel() })
	if !errors.Is(err, fault.Of(fault.Canceled)) {
		t.Error(err)
	}
}

// Sorted by class, chunks hold one label each; shuffled, they are as mixed as the whole.
func TestRho(t *testing.T) {
	samples := packtest.Numbered(4000, 100, 1)
	for i := range samples {
		samples[i].Vals[1] = packtest.Int(int64(i / 400))
		samples[i].Vals[0].Data = bytes.Repeat([]byte{1}, 92)
	}
	for shuffle, want := range map[bool]float64{false: 1, true: 0} {
		d := packtest.BuildWith(t, t.TempDir(), pack.Options{Schema: numbered(t), ChunkSize: 4000, Shuffle: shuffle}, samples...)
		if m := d.Manifest; m.Rho == nil || math.Abs(*m.Rho-want) > 0.02 || m.ClassCounts["3"] != 400 || m.LabelField != "label" {
			t.Errorf("shuffle %v: rho %v, counts %v", shuffle, *m.Rho, m.ClassCounts)
		}
	}
}
