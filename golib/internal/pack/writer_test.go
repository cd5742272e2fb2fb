package pack_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/pack"
	"github.com/redox-loader/redox/golib/internal/pack/packtest"
)

func numbered(t testing.TB) chunk.Schema { return packtest.Schema(t, "data", "bytes", "label", "int") }

func same(a, b packtest.Sample) bool {
	return a.Key == b.Key && slices.EqualFunc(a.Vals, b.Vals, func(x, y chunk.Value) bool {
		return x.Missing == y.Missing && bytes.Equal(x.Data, y.Data) && slices.Equal(x.Shape, y.Shape)
	})
}

// Whatever the codec, the memory and the number of workers: every sample comes back once, with its source and key, and
// the order and the fingerprint are the same.
func TestPackKeepsEverySample(t *testing.T) {
	samples := packtest.Numbered(3000, 300, 10)
	samples[7].Vals[0].Data = nil                                    // 0 bytes
	samples[8].Vals[0].Data = bytes.Repeat([]byte("large "), 40_000) // larger than a chunk
	samples[9].Key = "schlüssel/ключ/鍵.png"
	samples[10].Key = ""
	for _, shuffle := range []bool{false, true} {
		var order []uint64
		var fingerprint string
		for _, o := range []pack.Options{
			{Codec: "none"}, {Codec: "lz4", Workers: 3}, {Codec: "auto", Memory: 1 << 20, Workers: 1},
		} {
			o.Schema, o.Shuffle, o.Seed, o.ChunkSize, o.ShardSize = numbered(t), shuffle, 5, 16<<10, 200<<10
			dir := filepath.Join(t.TempDir(), "d")
			d := packtest.BuildWith(t, dir, o, samples...)
			got, sources := packtest.Read(t, dir)
			if len(got) != len(samples) || len(d.Manifest.Shards) < 2 {
				t.Fatalf("%d samples in %d shards", len(got), len(d.Manifest.Shards))
			}
			for i, source := range sources {
				want := samples[source]
				if want.Key == "" {
					want.Key = "10"
				}
				if !same(got[i], want) {
					t.Fatalf("%v: stored %d is not source %d", o.Codec, i, source)
				}
			}
			if order == nil {
				order, fingerprint = sources, d.Manifest.Fingerprint
			}
			if !slices.Equal(order, sources) || d.Manifest.Fingerprint != fingerprint {
				t.Errorf("codec %s, memory %d: another order or fingerprint", o.Codec, o.Memory)
			}
			if shuffle == slices.IsSorted(sources) {
				t.Errorf("shuffle=%v, sorted=%v", shuffle, !shuffle)
			}
			if _, err := os.Stat(filepath.Join(dir, chunk.WorkDir)); !os.IsNotExist(err) {
				t.Errorf("work files are left: %v", err)
			}
		}
	}
}

// A bucket larger than the memory is split; the order must not show it.
func TestShuffleDoesNotDependOnMemory(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	samples := make([]packtest.Sample, 600)
	for i := range samples { // 30 MB through 256 KiB of memory
		data := make([]byte, 50_000)
		for at := 0; at < 64; at++ {
			data[at] = byte(r.Uint32())
		}
		samples[i] = packtest.Sample{Vals: []chunk.Value{{Data: data}, packtest.Int(0)}}
	}
	var orders [2][]uint64
	for i, memory := range []int64{256 << 10, 1 << 30} {
		dir := t.TempDir()
		packtest.BuildWith(t, dir, pack.Options{Schema: numbered(t), Shuffle: true, Memory: memory, Codec: "lz4"}, samples...)
		_, orders[i] = packtest.Read(t, dir)
	}
	if !slices.Equal(orders[0], orders[1]) {
		t.Error("memory changed the order")
	}
}

// The order is a uniform shuffle: where a sample ends up does not depend on where it was. Chi-squared over tenths of
// the place before and after; 81 degrees of freedom exceed 140 once in 20,000 uniform shuffles, and the seeds are fixed.
func TestShuffleIsUniform(t *testing.T) {
	const n = 4000
	for seed := range uint64(3) {
		dir := t.TempDir()
		packtest.BuildWith(t, dir, pack.Options{Schema: numbered(t), Shuffle: true, Seed: seed, ChunkSize: 4 << 10}, packtest.Numbered(n, 8, 2)...)
		_, sources := packtest.Read(t, dir)
		var cells [100]float64
		neighbours := 0
		for place, source := range sources {
			cells[10*(10*place/n)+int(10*source/n)]++
			if place > 0 && source == sources[place-1]+1 {
				neighbours++
			}
		}
		chi := 0.0
		for _, c := range cells {
			chi += (c - n/100) * (c - n/100) / (n / 100)
		}
		if chi > 140 || chi < 35 || neighbours > 8 {
			t.Errorf("seed %d: chi-squared %.0f, %d neighbours stayed together", seed, chi, neighbours)
		}
	}
}

func TestInvalidSampleLeavesWriterUsable(t *testing.T) {
	dir := t.TempDir()
	w, err := pack.NewWriter(context.Background(), dir, pack.Options{Schema: numbered(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(0, "", []chunk.Value{{Data: []byte("x")}, {Data: []byte("not 8 bytes")}}); err == nil {
		t.Error("a wrong size passed")
	}
	if err := w.Write(0, "\xff", []chunk.Value{{Data: []byte("x")}, packtest.Int(1)}); err == nil {
		t.Error("a key passed that is not UTF-8")
	}
	if err := w.Write(1<<63, "", []chunk.Value{{Data: []byte("x")}, packtest.Int(1)}); err == nil {
		t.Error("a source number passed that is no int64")
	}
	if err := w.Write(0, "", []chunk.Value{{Data: []byte("x")}, packtest.Int(1)}); err != nil {
		t.Error(err)
	}
	m, err := w.Commit()
	if err != nil || m.Samples != 1 {
		t.Errorf("%d samples, %v", m.Samples, err)
	}
}
