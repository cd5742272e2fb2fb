package chunk_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
)

func schema(t testing.TB, kinds ...string) chunk.Schema {
	t.Helper()
	s := chunk.Schema{Layout: "tuple"}
	for i, kind := range kinds {
		f, err := chunk.ParseField(fmt.Sprintf("f%d", i), kind)
		if err != nil {
			t.Fatal(err)
		}
		s.Fields = append(s.Fields, f)
	}
	return s
}

// made is a chunk with what went into it.
type made struct {
	bytes  []byte
	entry  chunk.Entry
	layout *chunk.Layout
	raws   [][]byte
	keys   []string
}

// build makes a chunk of raw samples of the schema (bytes, int).
func build(t testing.TB, codec chunk.Codec, wide, keyed bool, bodies ...[]byte) made {
	t.Helper()
	m := made{layout: chunk.NewLayout(schema(t, "bytes", "int?", "str"))}
	b := chunk.NewBuilder(m.layout)
	if wide {
		chunk.ForceWide(b)
	}
	for i, body := range bodies {
		vals := []chunk.Value{{Data: body}, {Data: binary.LittleEndian.AppendUint64(nil, uint64(i)), Missing: i%3 == 2}, {Data: []byte("s")}}
		raw, err := m.layout.AppendSample(nil, vals)
		if err != nil {
			t.Fatal(err)
		}
		key := ""
		if keyed {
			key = fmt.Sprintf("schlüssel/%d", i)
		}
		b.Add(uint64(100+i), key, append(b.Buffer(), raw...))
		m.raws, m.keys = append(m.raws, raw), append(m.keys, key)
	}
	e, err := b.Encode(codec)
	if err != nil {
		t.Fatal(err)
	}
	m.entry = e.Place(0, 0)
	m.bytes = append(bytes.Clone(e.Head), e.Payload...)
	return m
}

// same says whether a view holds exactly what was put in.
func (m *made) same(v *chunk.View) bool {
	if v.Len() != len(m.raws) {
		return false
	}
	for i, raw := range m.raws {
		prefix, _, n := v.Stored(i)
		body, err := v.Body(i, nil)
		if err != nil || uint64(len(body)) != n || !bytes.Equal(append(bytes.Clone(prefix), body...), raw) || v.Source(i) != uint64(100+i) {
			return false
		}
		if key := v.Key(i); key != m.keys[i] && (m.keys[i] != "" || key != fmt.Sprint(100+i)) {
			return false
		}
	}
	return true
}

func text(n int) []byte { return bytes.Repeat([]byte("abcdefgh"), n/8) }

func variants(t testing.TB) map[string]made {
	odd := [][]byte{text(80), nil, []byte("x"), text(400), []byte("incompressible?!")}
	return map[string]made{
		"lz4":       build(t, chunk.LZ4, false, true, odd...),
		"none":      build(t, chunk.None, false, true, odd...),
		"wide lz4":  build(t, chunk.LZ4, true, true, odd...),
		"wide none": build(t, chunk.None, true, false, odd...),
		"even":      build(t, chunk.None, false, false, text(16), text(16), text(16)),
		"one":       build(t, chunk.None, false, false, nil),
	}
}

func TestChunkRoundTrip(t *testing.T) {
	for name, m := range variants(t) {
		v, err := chunk.Parse(append(bytes.Clone(m.bytes), make([]byte, 99)...), m.entry, m.layout) // padded, as direct reads are
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !m.same(&v) {
			t.Errorf("%s: other samples came out", name)
		}
		if err := v.CheckContent(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for i := range v.Len() { // the way of a ranged read
			table, err := chunk.ParseTable(m.bytes[:chunk.HeaderSize+m.entry.TableBytes], m.entry, m.layout)
			if err != nil {
				t.Fatal(err)
			}
			at, n := table.Range(i)
			prefix, body, raw, err := table.Sample(i, m.bytes[at:at+n])
			want, wantBody, wantRaw := v.Stored(i)
			if err != nil || !bytes.Equal(prefix, want) || !bytes.Equal(body, wantBody) || raw != wantRaw {
				t.Errorf("%s: sample %d by range: %v", name, i, err)
			}
		}
	}
}

// Every truncation and every flipped bit gives a typed error, or (behind the chunk's end) changes nothing.
func TestDamagedChunkNeverLies(t *testing.T) {
	for name, m := range variants(t) {
		for n := range m.bytes {
			if _, err := chunk.Parse(m.bytes[:n], m.entry, m.layout); !errors.Is(err, fault.Of(fault.Corrupt)) {
				t.Fatalf("%s cut to %d bytes: %v", name, n, err)
			}
		}
		b := bytes.Clone(m.bytes)
		for bit := range 8 * len(b) {
			b[bit/8] ^= 1 << (bit % 8)
			_, err := chunk.Parse(b, m.entry, m.layout)
			if kind := fault.KindOf(err); err == nil || kind != fault.Corrupt && kind != fault.Version {
				t.Fatalf("%s, bit %d: %v", name, bit, err)
			}
			b[bit/8] ^= 1 << (bit % 8)
		}
	}
}

// A flipped bit in the payload is found in its sample.
func TestDamageIsLocated(t *testing.T) {
	m := build(t, chunk.LZ4, false, true, text(80), text(400), text(800))
	v, err := chunk.Parse(m.bytes, m.entry, m.layout)
	if err != nil {
		t.Fatal(err)
	}
	at, _ := v.Range(1)
	m.bytes[at+3] ^= 4
	if v, err = chunk.ParseUnsummed(m.bytes, m.entry, m.layout); err != nil {
		t.Fatal(err)
	}
	for i := range v.Len() {
		err := v.Check(i)
		var e *fault.Error
		if (i == 1) != (err != nil) || err != nil && (!errors.As(err, &e) || e.Sample != 1 || e.Chunk != 0 || e.Shard != 0) {
			t.Errorf("sample %d: %v", i, err)
		}
	}
}

// A payload of more than 4 GiB has u64 columns. Only the table of such a chunk is made here; it is what is looked up.
func TestChunkLargerThan4GiB(t *testing.T) {
	const large = 4300 << 20
	l := chunk.NewLayout(schema(t, "bytes"))
	head, entry := chunk.TableOf(l, []uint64{0, large - 10, large})
	table, err := chunk.ParseTable(head, entry, l)
	if err != nil {
		t.Fatal(err)
	}
	if at, n := table.Range(2); at != uint64(len(head))+large-10 || n != 10 || entry.MaxRaw != large-10 || table.RawBody(1) != large-10 {
		t.Errorf("sample 2 at %d, %d bytes; largest %d", at, n, entry.MaxRaw)
	}
	if entry.Stored != uint64(len(head))+large || table.RawBody(0) != 0 {
		t.Errorf("%+v", entry)
	}
}

// The same with the real bytes: a mapping that is only read, so its zeros take no memory, but ten seconds of faults.
func TestSampleLargerThan4GiB(t *testing.T) {
	if os.Getenv("REDOX_TEST_LARGE") == "" {
		t.Skip("set REDOX_TEST_LARGE=1")
	}
	const large = 4300 << 20
	zeros, err := unix.Mmap(-1, 0, large, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		t.Skip(err)
	}
	defer unix.Munmap(zeros)
	l := chunk.NewLayout(schema(t, "bytes"))
	b := chunk.NewBuilder(l)
	b.Add(0, "", zeros[:0])
	b.Add(1, "", zeros[:large-10])
	b.Add(2, "", zeros)
	e, err := b.Encode(chunk.LZ4) // too large for lz4: falls back to raw
	if err != nil {
		t.Fatal(err)
	}
	table, err := chunk.ParseTable(e.Head, e.Place(0, 0), l)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, raw, err := table.Sample(1, zeros[:large-10]); err != nil || raw != large-10 {
		t.Error(raw, err)
	}
}

func TestSumJoin(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 5000)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	for _, cut := range []int{0, 1, 7, 4096, 5000} {
		if got := chunk.SumJoin(chunk.Sum(b[:cut]), chunk.Sum(b[cut:]), uint64(len(b)-cut)); got != chunk.Sum(b) {
			t.Errorf("cut at %d: %08x, want %08x", cut, got, chunk.Sum(b))
		}
	}
	if chunk.Sum([]byte("123456789")) != 0xe3069283 || crc32.Castagnoli == crc32.IEEE {
		t.Error("not CRC-32C")
	}
}

// Look-ups are what the engine does a million times a second.
func TestLookUpsDoNotAllocate(t *testing.T) {
	m := build(t, chunk.LZ4, false, true, text(80), text(400), text(800))
	scratch, vals := make([]byte, 4096), make([]chunk.Value, 3)
	if n := testing.AllocsPerRun(100, func() {
		v, err := chunk.Parse(m.bytes, m.entry, m.layout)
		if err != nil {
			t.Fatal(err)
		}
		for i := range v.Len() {
			prefix, _, _ := v.Stored(i)
			body, err := v.Body(i, scratch)
			if err != nil || m.layout.Split(prefix, body, vals) != nil || v.Check(i) != nil || len(v.KeyBytes(i)) == 0 {
				t.Fatal(err)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
