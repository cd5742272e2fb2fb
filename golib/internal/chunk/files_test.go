package chunk_test

import (
	"bytes"
	"errors"
	"io/fs"
	"testing"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
)

// files is a data set in memory.
type files map[string][]byte

func (f files) ReadFile(name string) ([]byte, error) {
	if b, ok := f[name]; ok {
		return b, nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// dataset is manifest and index of two chunks in two shards.
func dataset(t testing.TB) files {
	t.Helper()
	m := build(t, chunk.None, false, false, text(16), text(24))
	a, b := m.entry, m.entry
	a.Offset, b.Offset = chunk.Align, chunk.Align
	b.Shard, b.Chunk, b.First = 1, 1, uint64(a.Samples)
	x := chunk.Index{Entries: []chunk.Entry{a, b}}
	index := x.Append(nil)
	shard := chunk.Shard{Name: "shards/00000.rdx", Bytes: 2 * chunk.Align, Chunks: 1, Samples: uint64(a.Samples)}
	second := shard
	second.Name = "shards/00001.rdx"
	manifest, err := chunk.Manifest{
		Head: chunk.Head{Schema: schema(t, "bytes", "int?", "str"), Codec: "none", Classes: []string{"<ä&b>"}}, Samples: 4, Chunks: 2,
		Index:  chunk.IndexFile{Bytes: uint64(len(index)), Sum: chunk.Hex32(chunk.Sum(index))},
		Shards: []chunk.Shard{shard, second}, Parts: []chunk.Part{{Shards: 2, Chunks: 2, Samples: 4, Sources: 4}},
	}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return files{chunk.ManifestName: manifest, chunk.IndexName: index}
}

func TestOpen(t *testing.T) {
	d, err := chunk.Open(dataset(t))
	if err != nil {
		t.Fatal(err)
	}
	if d.Manifest.Samples != 4 || len(d.Index.Entries) != 2 || d.Index.Samples() != 4 || d.Layout.Fields() != 3 || d.Manifest.Classes[0] != "<ä&b>" {
		t.Errorf("%+v", d)
	}
	if _, err := chunk.Open(files{}); !errors.Is(err, fault.Of(fault.NotDataset)) {
		t.Errorf("nothing there: %v", err)
	}
	if _, err := chunk.Open(files{chunk.JournalName: nil}); !errors.Is(err, fault.Of(fault.NotDataset)) || err.Error() != "half-packed: pack it again to finish" {
		t.Errorf("half-packed: %v", err)
	}
	newer := dataset(t)
	newer[chunk.ManifestName] = bytes.Replace(newer[chunk.ManifestName], []byte(`"redox 1.0"`), []byte(`"redox 2.0"`), 1)
	if _, err := chunk.Open(newer); !errors.Is(err, fault.Of(fault.Version)) {
		t.Errorf("newer: %v", err)
	}
}

// Every truncation and flipped bit of manifest and index is noticed.
func TestDamagedFilesDoNotOpen(t *testing.T) {
	for _, name := range []string{chunk.ManifestName, chunk.IndexName} {
		good := dataset(t)
		for n := range good[name] {
			cut := files{chunk.ManifestName: good[chunk.ManifestName], chunk.IndexName: good[chunk.IndexName]}
			cut[name] = good[name][:n]
			if _, err := chunk.Open(cut); fault.KindOf(err) == fault.Internal && n < len(good[name])-1 { // the last byte is a newline
				t.Fatalf("%s cut to %d: %v", name, n, err)
			}
		}
		for bit := range 8 * len(good[name]) {
			b := bytes.Clone(good[name])
			b[bit/8] ^= 1 << (bit % 8)
			broken := files{chunk.ManifestName: good[chunk.ManifestName], chunk.IndexName: good[chunk.IndexName]}
			broken[name] = b
			_, err := chunk.Open(broken)
			if kind := fault.KindOf(err); err == nil || kind != fault.Corrupt && kind != fault.Format && kind != fault.Version {
				t.Fatalf("%s, bit %d: %v", name, bit, err)
			}
		}
	}
}

// An index whose checksums are right but whose entries are not must be refused too.
func TestInconsistentIndex(t *testing.T) {
	m := build(t, chunk.None, false, false, text(16))
	for name, change := range map[string]func(e *chunk.Entry){
		"offset not aligned": func(e *chunk.Entry) { e.Offset = 100 }, "in the shard header": func(e *chunk.Entry) { e.Offset = 0 },
		"too small": func(e *chunk.Entry) { e.Stored = 10 }, "absurd size": func(e *chunk.Entry) { e.Stored = 1 << 60 },
		"no samples": func(e *chunk.Entry) { e.Samples = 0 }, "too many samples": func(e *chunk.Entry) { e.Samples = 1 << 30 },
		"raw bomb": func(e *chunk.Entry) { e.Raw = 1 << 50 }, "not first": func(e *chunk.Entry) { e.First = 1 },
		"wrong number": func(e *chunk.Entry) { e.Chunk = 7 }, "shard left out": func(e *chunk.Entry) { e.Shard = 1 },
		"table beyond": func(e *chunk.Entry) { e.TableBytes = 1 << 31 }, "largest beyond all": func(e *chunk.Entry) { e.MaxRaw = e.Raw + 1 },
	} {
		e := m.entry
		e.Offset = chunk.Align
		change(&e)
		x := chunk.Index{Entries: []chunk.Entry{e}}
		if _, err := chunk.ParseIndex(x.Append(nil)); !errors.Is(err, fault.Of(fault.Corrupt)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzIndex(f *testing.F) {
	f.Add(dataset(f)[chunk.IndexName])
	f.Add([]byte("RDXINDEX"))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := chunk.ParseIndex(b)
		if err == nil && !bytes.Equal(x.Append(nil)[64:], b[64:]) && len(x.Entries) > 0 && allZero(b, x) {
			t.Error("an accepted index is written differently")
		}
	})
}

// allZero: the reserved word of every entry is zero, so that writing can give the same bytes.
func allZero(b []byte, x chunk.Index) bool {
	for i := range x.Entries {
		if !bytes.Equal(b[64+64*i+60:64+64*i+64], make([]byte, 4)) {
			return false
		}
	}
	return true
}

func FuzzManifest(f *testing.F) {
	f.Add(dataset(f)[chunk.ManifestName])
	f.Add([]byte(`{"format": "redox 1.0", "requires": []}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := chunk.ParseManifest(b); err == nil {
			if _, err := m.Encode(); err != nil {
				t.Error(err)
			}
			chunk.NewLayout(m.Schema)
		}
	})
}

// FuzzChunk mends the checksums first, so that the fuzzer gets behind them to the structure.
func FuzzChunk(f *testing.F) {
	for _, m := range variants(f) {
		f.Add(m.bytes)
	}
	l := chunk.NewLayout(schema(f, "bytes", "int?", "str"))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, mended := chunk.Mend(b)
		v, err := chunk.Parse(mended, e, l)
		if err != nil {
			return
		}
		vals := make([]chunk.Value, 3)
		for i := range v.Len() {
			prefix, _, raw := v.Stored(i)
			if raw > 256*uint64(len(b)) {
				t.Fatalf("%d bytes ask for %d", len(b), raw)
			}
			v.Key(i)
			v.Source(i)
			if body, err := v.Body(i, nil); err == nil {
				_ = l.Split(prefix, body, vals)
			}
		}
	})
}
