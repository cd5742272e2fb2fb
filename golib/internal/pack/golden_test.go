package pack_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/pack"
	"github.com/redox-loader/redox/golib/internal/pack/packtest"
)

var update = flag.Bool("update", false, "write the golden files anew")

const golden = "../../../tests/golden/format"

// goldenSamples use every kind of place in a sample: fixed, variable, missing, empty, of any shape.
func goldenSamples() (chunk.Schema, []packtest.Sample) {
	s := packtest.Schema(nil, "text", "str", "label", "int", "x", "float32[2]?", "array", "uint16?", "flag", "bool", "data", "bytes?")
	s.Layout = "dict"
	samples := make([]packtest.Sample, 24)
	for i := range samples {
		text := strings.Repeat("redox ", i*i%37)
		if i == 3 {
			text = "größe 鍵"
		}
		array := chunk.Value{Data: bytes.Repeat([]byte{byte(i), 1}, 2*(i%4)), Shape: []uint64{2, uint64(i % 4)}}
		vals := []chunk.Value{
			packtest.Bytes(text), packtest.Int(int64(i%3) - 1), {Data: []byte{0, 0, 128, 63, 0, 0, 0, byte(i)}}, array,
			{Data: []byte{byte(i % 2)}}, {Data: bytes.Repeat([]byte{byte(i * 7)}, i*i%200)},
		}
		for field, every := range map[int]int{2: 5, 3: 7, 5: 4} {
			if i%every == 1 {
				vals[field] = chunk.Value{Missing: true}
			}
		}
		samples[i] = packtest.Sample{Vals: vals}
		if i%2 == 0 {
			samples[i].Key = "dir/ключ " + string(rune('a'+i)) + ".bin"
		}
	}
	return s, samples
}

// TestGolden: what is written is, byte by byte, what was written when format 1.0 was fixed. A change here is a new
// version of the format, unless lz4 or the JSON encoder changed: then readers must still read both.
func TestGolden(t *testing.T) {
	schema, samples := goldenSamples()
	for name, o := range map[string]pack.Options{
		"lz4":  {Codec: "lz4", Shuffle: true, Seed: 42, SourceHash: "golden", Classes: []string{"zero", "one"}, Meta: map[string]any{"made_by": "TestGolden"}},
		"none": {Codec: "none"},
	} {
		o.Schema, o.ChunkSize, o.ShardSize = schema, 1<<10, 8<<10
		dir := filepath.Join(t.TempDir(), name)
		packtest.BuildWith(t, dir, o, samples...)
		kept := filepath.Join(golden, name)
		if *update {
			if err := os.RemoveAll(kept); err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS(kept, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
		}
		got, want := contentsOf(t, dir), contentsOf(t, kept)
		if len(got) != len(want) {
			t.Errorf("%s: %d files, golden %d", name, len(got), len(want))
		}
		for file := range want {
			if got[file] != want[file] {
				t.Errorf("%s/%s differs from the golden file (-update writes it; then look at the difference)", name, file)
			}
		}
	}
}

// TestReaderFromTheDocument runs a second reader, which knows what docs/format.md says: in Python without a package,
// and compares what it reads with what went in, for both codecs.
func TestReaderFromTheDocument(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	want := readable()
	for _, name := range []string{"none", "lz4"} {
		out, err := exec.Command(python, filepath.Join(golden, "read.py"), filepath.Join(golden, name)).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if string(out) != want {
			t.Errorf("%s: the reader sees other samples:\n%s\nwant\n%s", name, out, want)
		}
	}
}

// readable is the golden samples as read.py prints them.
func readable() string {
	var b strings.Builder
	schema, samples := goldenSamples()
	for i, s := range samples {
		if s.Key == "" {
			s.Key = fmt.Sprint(i)
		}
		fields := make([]string, len(s.Vals))
		for f, v := range s.Vals {
			text := "-"
			if !v.Missing {
				shape := []byte{}
				if name := schema.Fields[f].Name; name == "array" { // of any shape: its shape goes first
					shape = append(shape, byte(len(v.Shape)))
					for _, d := range v.Shape {
						shape = binary.LittleEndian.AppendUint64(shape, d)
					}
				}
				text = hex.EncodeToString(append(shape, v.Data...))
			}
			fields[f] = schema.Fields[f].Name + "=" + text
		}
		slices.Sort(fields)
		fmt.Fprintf(&b, "%d '%s' %s\n", i, s.Key, strings.Join(fields, " "))
	}
	return b.String()
}
