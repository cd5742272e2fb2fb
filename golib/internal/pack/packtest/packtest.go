// Package packtest makes small data sets for the tests of other packages.
package packtest

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/pack"
)

// Sample is one sample to pack.
type Sample struct {
	Key  string // "": its number
	Vals []chunk.Value
}

// Schema makes a tuple schema out of names and kinds, in turn: Schema(t, "x", "float32[4]", "label", "int").
func Schema(t testing.TB, namesAndKinds ...string) chunk.Schema {
	s := chunk.Schema{Layout: "tuple"}
	for i := 0; i+1 < len(namesAndKinds); i += 2 {
		f, err := chunk.ParseField(namesAndKinds[i], namesAndKinds[i+1])
		if err != nil {
			t.Fatal(err)
		}
		s.Fields = append(s.Fields, f)
	}
	return s
}

// Int, Float and Bytes make values.
func Int(v int64) chunk.Value {
	return chunk.Value{Data: binary.LittleEndian.AppendUint64(nil, uint64(v))}
}

// Float makes a value of kind float.
func Float(v float64) chunk.Value {
	return chunk.Value{Data: binary.LittleEndian.AppendUint64(nil, math.Float64bits(v))}
}

// Bytes makes a value of any kind out of its bytes.
func Bytes[T string | []byte](v T) chunk.Value { return chunk.Value{Data: []byte(v)} }

// Build packs samples into dir in the order given (chunks of 1 KiB of raw bytes, shards of 64 KiB, no codec); sample i
// has source number i.
func Build(t testing.TB, dir string, schema chunk.Schema, samples ...Sample) *chunk.Dataset {
	t.Helper()
	return BuildWith(t, dir, pack.Options{Schema: schema, ChunkSize: 1 << 10, ShardSize: 64 << 10, Codec: "none"}, samples...)
}

// BuildWith is Build with options.
func BuildWith(t testing.TB, dir string, o pack.Options, samples ...Sample) *chunk.Dataset {
	t.Helper()
	w, err := pack.NewWriter(context.Background(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range samples {
		if err := w.Write(uint64(i), s.Key, s.Vals); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	return Open(t, dir)
}

// Numbered is n samples of a schema ("data", "bytes", "label", "int"): size bytes that tell the number, label i % classes.
func Numbered(n, size, classes int) []Sample {
	samples := make([]Sample, n)
	for i := range samples {
		data := make([]byte, size)
		for at := range data {
			data[at] = byte(i>>(at%4*8)) + byte(at/4)
		}
		samples[i] = Sample{Key: fmt.Sprintf("k%d", i), Vals: []chunk.Value{Bytes(data), Int(int64(i % classes))}}
	}
	return samples
}

// Open opens a data set in a directory.
func Open(t testing.TB, dir string) *chunk.Dataset {
	t.Helper()
	d, err := chunk.Open(Files(dir))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Files is a directory as chunk.Files.
type Files string

// ReadFile reads a file of the data set.
func (f Files) ReadFile(name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(string(f), filepath.FromSlash(name)))
}

// View reads and parses chunk c.
func View(t testing.TB, dir string, d *chunk.Dataset, c int) chunk.View {
	t.Helper()
	e := d.Index.Entries[c]
	f, err := os.Open(filepath.Join(dir, filepath.FromSlash(d.Manifest.Shards[e.Shard].Name)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, e.Stored)
	if _, err := f.ReadAt(b, int64(e.Offset)); err != nil {
		t.Fatal(err)
	}
	v, err := chunk.Parse(b, e, d.Layout)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Read reads every sample back in stored order.
func Read(t testing.TB, dir string) (samples []Sample, sources []uint64) {
	t.Helper()
	d := Open(t, dir)
	for c := range d.Index.Entries {
		v := View(t, dir, d, c)
		for i := range v.Len() {
			prefix, _, _ := v.Stored(i)
			body, err := v.Body(i, nil)
			if err != nil {
				t.Fatal(err)
			}
			vals := make([]chunk.Value, d.Layout.Fields())
			if err := d.Layout.Split(prefix, body, vals); err != nil {
				t.Fatal(err)
			}
			samples = append(samples, Sample{Key: v.Key(i), Vals: vals})
			sources = append(sources, v.Source(i))
		}
	}
	return samples, sources
}
