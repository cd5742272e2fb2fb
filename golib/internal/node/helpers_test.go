package node

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/plan"
	"github.com/redox-loader/redox/golib/internal/store"
)

// dataset is a small data set whose samples can be recomputed from their stored numbers.
type dataset struct {
	dir      string
	manifest chunk.Manifest
	index    chunk.Index
	schema   chunk.Schema
	value    func(number int64) []chunk.Value
}

func parseField(t testing.TB, name, kind string) chunk.Field {
	t.Helper()
	f, err := chunk.ParseField(name, kind)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// kinds of data sets: field kinds and the values of a sample.
func fixedValues(bytes int) func(int64) []chunk.Value {
	return func(n int64) []chunk.Value {
		return []chunk.Value{{Data: pattern(n, bytes)}, {Data: binary.LittleEndian.AppendUint64(nil, uint64(n))}}
	}
}

func variableValues(n int64) []chunk.Value {
	return []chunk.Value{{Data: pattern(n, int(n*n%311))}}
}

// mixedValues are all that a schema can have: two variable fields, an array of any shape, a nullable one.
func mixedValues(n int64) []chunk.Value {
	shape := []uint64{uint64(n % 3), uint64(n % 5)}
	if n%4 == 0 {
		shape = shape[:1]
	}
	items := 1
	for _, d := range shape {
		items *= int(d)
	}
	maybe := chunk.Value{Data: pattern(n+1, int(n%97))}
	if n%7 == 0 {
		maybe = chunk.Value{Missing: true}
	}
	return []chunk.Value{
		{Data: pattern(n, int(n*7%200))}, {Data: binary.LittleEndian.AppendUint64(nil, uint64(n))},
		{Data: pattern(n+2, 4*items), Shape: shape}, maybe,
	}
}

// pattern is compressible and tells samples apart.
func pattern(n int64, size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(n>>(8*(i%4))) + byte(i/16)
	}
	return b
}

type shape struct {
	samples, perChunk, perShard int
	codec                       chunk.Codec
	fields                      []chunk.Field
	value                       func(int64) []chunk.Value
}

func fixedShape(t testing.TB, samples, perChunk, bytes int) shape {
	return shape{samples, perChunk, 5, chunk.None, []chunk.Field{
		parseField(t, "x", fmt.Sprintf("uint8[%d]", bytes)), parseField(t, "label", "int")}, fixedValues(bytes)}
}

func variableShape(t testing.TB, samples, perChunk int) shape {
	return shape{samples, perChunk, 5, chunk.None, []chunk.Field{parseField(t, "data", "bytes")}, variableValues}
}

func mixedShape(t testing.TB, samples, perChunk int) shape {
	return shape{samples, perChunk, 5, chunk.None, []chunk.Field{
		parseField(t, "data", "bytes"), parseField(t, "label", "int"), parseField(t, "any", "int32[...]"), parseField(t, "maybe", "bytes?")}, mixedValues}
}

// write packs a data set into a directory of the test.
func write(t testing.TB, s shape) *dataset {
	t.Helper()
	d := &dataset{dir: t.TempDir(), schema: chunk.Schema{Fields: s.fields, Layout: "tuple"}, value: s.value}
	layout := chunk.NewLayout(d.schema)
	b := chunk.NewBuilder(layout)
	var file bytes.Buffer
	flush := func() {
		name := fmt.Sprintf("%05d.rdx", len(d.manifest.Shards))
		if err := os.WriteFile(filepath.Join(d.dir, name), file.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
		d.manifest.Shards = append(d.manifest.Shards, chunk.Shard{Name: name, Bytes: uint64(file.Len())})
		file.Reset()
	}
	for first := 0; first < s.samples; first += s.perChunk {
		b.Reset()
		for n := first; n < min(first+s.perChunk, s.samples); n++ {
			buf, err := layout.AppendSample(b.Buffer(), s.value(int64(n)))
			if err != nil {
				t.Fatal(err)
			}
			b.Add(uint64(1000+n), "", buf)
		}
		enc, err := b.Encode(s.codec)
		if err != nil {
			t.Fatal(err)
		}
		e := enc.Place(uint64(len(d.index.Entries)), uint64(first))
		e.Shard, e.Offset = uint32(len(d.manifest.Shards)), uint64(file.Len())
		d.index.Entries = append(d.index.Entries, e)
		file.Write(enc.Head)
		file.Write(enc.Payload)
		file.Write(make([]byte, -file.Len()&4095))
		if len(d.index.Entries)%s.perShard == 0 {
			flush()
		}
	}
	if file.Len() > 0 {
		flush()
	}
	return d
}

func (d *dataset) samples() []uint32 {
	var n []uint32
	for _, e := range d.index.Entries {
		n = append(n, e.Samples)
	}
	return n
}

func (d *dataset) plan(t testing.TB, spec plan.Spec) *plan.Plan {
	t.Helper()
	spec.Samples = d.samples()
	p, err := plan.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (d *dataset) source(io store.IO) store.Source {
	return LocalSource(d.dir, &d.manifest, &d.index, io)
}

// engine opens the data set; it is closed with the test.
func (d *dataset) engine(t testing.TB, source store.Source, limit int64) *Engine {
	t.Helper()
	r := NewReader(source, d.schema, &d.index, 0)
	e, err := NewEngine(r, limit, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	t.Cleanup(e.Close)
	return e
}

func oneRank(batch int) plan.World { return plan.World{Nodes: []int{1}, BatchSize: batch} }

func newRun(t testing.TB, e *Engine, cfg RunConfig) *Run {
	t.Helper()
	if cfg.Timeout == 0 {
		cfg.Timeout = 20 * time.Second
	}
	r, err := e.NewRun(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// check compares a batch with the samples that its index names.
func (d *dataset) check(t testing.TB, b *Batch) {
	t.Helper()
	for i, number := range b.Index[:b.N] {
		if number < 0 {
			number = -1 - number
		}
		for k, want := range d.value(number) {
			got, c := []byte(nil), &b.Fields[k]
			if c.Offsets != nil {
				got = c.Data[c.Offsets[i]:c.Offsets[i+1]]
			} else {
				size := int(c.Need) / b.N
				got = c.Data[i*size : (i+1)*size]
			}
			if !bytes.Equal(got, want.Data) {
				t.Fatalf("sample %d, field %d: %d bytes differ from the %d wanted", number, k, len(got), len(want.Data))
			}
			if c.Valid != nil && (c.Valid[i] == 0) != want.Missing {
				t.Fatalf("sample %d, field %d: valid is %d", number, k, c.Valid[i])
			}
			for x := range c.ShapeCap {
				dim := noDim
				if x < len(want.Shape) {
					dim = want.Shape[x]
				}
				if c.Shape[i*c.ShapeCap+x] != dim {
					t.Fatalf("sample %d: shape %v, want %v", number, c.Shape[i*c.ShapeCap:(i+1)*c.ShapeCap], want.Shape)
				}
			}
		}
	}
}

// epoch delivers all that is left of the epoch by Acquire, or by Next if direct, and returns the stored numbers.
func (d *dataset) epoch(t testing.TB, r *Run, direct bool) (numbers []int64) {
	t.Helper()
	for {
		b, done := d.next(t, r, direct)
		if done {
			return numbers
		}
		numbers = append(numbers, b...)
	}
}

// next delivers one batch and checks it.
func (d *dataset) next(t testing.TB, r *Run, direct bool) (numbers []int64, done bool) {
	t.Helper()
	var b Batch
	if direct {
		b = d.memory(r.cfg.World.BatchSize, r.rec)
		err := r.Next(&b, -1)
		if fault.KindOf(err) == fault.EndOfEpoch {
			return nil, true
		}
		if err != nil {
			t.Fatal(err)
		}
		d.check(t, &b)
		return append(numbers, b.Index[:b.N]...), false
	}
	s, err := r.Acquire(&b, -1)
	if fault.KindOf(err) == fault.EndOfEpoch && err != nil {
		return nil, true
	}
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	d.check(t, &b)
	return append(numbers, b.Index[:b.N]...), false
}

// memory is a batch large enough for anything in these tests.
func (d *dataset) memory(batch int, rec *record) Batch {
	b := Batch{CapSamples: batch, Index: make([]int64, batch), Fields: make([]Column, len(rec.fields))}
	for k := range rec.fields {
		f, c := &rec.fields[k], &b.Fields[k]
		size := 512
		if f.fixed {
			size = f.size
		} else {
			c.Offsets = make([]uint64, batch+1)
		}
		if f.shaped {
			c.ShapeCap = 4
			c.Shape = make([]uint64, 4*batch)
		}
		if f.nullable {
			c.Valid = make([]byte, batch)
		}
		c.Data = make([]byte, size*batch)
	}
	return b
}

// nextEither acquires, and where a batch fits no slot takes it into memory of its own.
func (d *dataset) nextEither(t testing.TB, r *Run, direct bool) (numbers []int64, done bool) {
	t.Helper()
	if !direct {
		var b Batch
		s, err := r.Acquire(&b, -1)
		switch {
		case err == nil:
			d.check(t, &b)
			numbers = append(numbers, b.Index[:b.N]...)
			s.Release()
			return numbers, false
		case ended(err):
			return nil, true
		case fault.KindOf(err) != fault.Range:
			t.Fatal(err)
		}
	}
	return d.next(t, r, true)
}

// measured reports a quantity that benchmarks/targets.py puts into its table; all times of cluster tests are virtual.
func measured(t testing.TB, name string, value float64, unit string) {
	t.Helper()
	t.Logf("measured %s %g %s", name, value, unit)
}

func ended(err error) bool { return err != nil && fault.KindOf(err) == fault.EndOfEpoch }
