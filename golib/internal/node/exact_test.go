package node

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/store"
)

// exactly reads samples by number into memory that can be lent.
func exactly(t *testing.T, e *Engine, numbers []int64, corrupt func(error) error) (*Result, error) {
	t.Helper()
	x, err := e.NewExact(numbers, nil, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if ok, _, err := x.Room(1, 0); !ok || err != nil {
		t.Fatalf("no room: %v", err)
	}
	return x.Fill(time.Second, corrupt)
}

// TestExactReadsNeighboursTogether: whatever is asked for comes back, and what lies side by side is one request.
func TestExactReadsNeighboursTogether(t *testing.T) {
	for _, codec := range []chunk.Codec{chunk.None, chunk.LZ4} {
		s := mixedShape(t, 300, 30)
		s.codec = codec
		d := write(t, s)
		e := d.engine(t, d.source(store.Buffered), 4<<20)
		random := make([]int64, 50)
		for i := range random {
			random[i] = rand.Int64N(300)
		}
		all := make([]int64, 300)
		for i := range all {
			all[i] = int64(i)
		}
		slices.Reverse(all)
		for _, numbers := range [][]int64{{7}, {299, 0, 0, 150}, random, all} {
			before := e.Stats()
			r, err := exactly(t, e, numbers, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(r.Batch().Index, numbers) {
				t.Fatalf("asked for %v, got %v", numbers, r.Batch().Index)
			}
			d.check(t, r.Batch())
			if reads := e.Stats().Reads - before.Reads; reads > 20 {
				t.Errorf("%d requests for %d samples of 10 chunks", reads, len(numbers))
			}
			r.Release()
		}
		if e.exact.live != 0 {
			t.Errorf("%d bytes are missing", e.exact.live)
		}
	}
}

// TestSpansLeaveGapsOut: samples that are far apart in a chunk are read apart.
func TestSpansLeaveGapsOut(t *testing.T) {
	d := write(t, fixedShape(t, 100, 50, 4000))
	r := NewReader(d.source(store.Buffered), d.schema, &d.index, 0)
	defer r.Close()
	for _, c := range []struct {
		numbers []int64
		spans   int
		samples int64
	}{
		{[]int64{1, 3, 2}, 1, 3}, {[]int64{0, 3}, 1, 4}, {[]int64{0, 20, 21}, 2, 3}, {[]int64{49, 50}, 2, 2}, {[]int64{5, 5, 5}, 1, 1},
	} {
		l, err := r.look(c.numbers, nil, &patience{limit: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if len(l.spans) != c.spans || l.stage != c.samples*4008 {
			t.Errorf("%v: %d spans of %d bytes, expected %d of %d", c.numbers, len(l.spans), l.stage, c.spans, c.samples*4008)
		}
	}
}

// TestReadAgainWithMoreRoom: what was read for too little room is not read again.
func TestReadAgainWithMoreRoom(t *testing.T) {
	d := write(t, variableShape(t, 100, 10))
	r := NewReader(d.source(store.Buffered), d.schema, &d.index, 0)
	defer r.Close()
	rec, err := newRecord(d.schema, r.layout, nil)
	if err != nil {
		t.Fatal(err)
	}
	numbers := []int64{20, 21, 22, 40, 99}
	mem := d.memory(5, rec)
	room := mem.Fields[0].Data
	mem.Fields[0].Data = nil
	if err := r.Read(numbers, nil, &mem, time.Second); fault.KindOf(err) != fault.Range || mem.Fields[0].Need == 0 {
		t.Fatalf("no room: %v", err)
	}
	reads := r.Stats().Reads
	mem.Fields[0].Data = room
	if err := r.Read(numbers, nil, &mem, time.Second); err != nil {
		t.Fatal(err)
	}
	d.check(t, &mem)
	if again := r.Stats(); again.Reads != reads || again.Samples != 5 {
		t.Errorf("%d requests, and %d more for the same; %d samples", reads, again.Reads-reads, again.Samples)
	}
}

// TestExactWithCorruptSamples: neighbours of a corrupt sample are not harmed; it is replaced, or named.
func TestExactWithCorruptSamples(t *testing.T) {
	d := write(t, fixedShape(t, 40, 10, 100))
	d.flip(t, 1, d.payload(1)+3*108+50)
	e := d.engine(t, d.source(store.Buffered), 1<<20)
	numbers := []int64{12, 13, 14, 30}
	var f *fault.Error
	if _, err := exactly(t, e, numbers, nil); !errors.As(err, &f) || f.Kind != fault.Corrupt || f.Sample != 13 {
		t.Fatalf("a corrupt sample: %v", err)
	}
	told := 0
	skip := func(error) error { told++; return nil }
	r, err := exactly(t, e, numbers, skip)
	if err != nil || told != 1 || !slices.Equal(r.Batch().Index, []int64{12, 12, 14, 30}) || r.Batch().Flags != Skipped {
		t.Fatalf("replaced: %v, %d", err, told)
	}
	d.check(t, r.Batch())
	r.Release()
	if _, err := exactly(t, e, []int64{13}, skip); fault.KindOf(err) != fault.Corrupt {
		t.Fatalf("nothing can replace it: %v", err)
	}
	if e.exact.live != 0 {
		t.Errorf("%d bytes are missing", e.exact.live)
	}
}

// TestExactRoom: the limit holds, a batch that fits never is refused for ever, and one that does not is told what it needs.
func TestExactRoom(t *testing.T) {
	d := write(t, fixedShape(t, 100, 10, 4000))
	numbers := []int64{1, 20, 30, 40}
	e := d.engine(t, d.source(store.Buffered), 1<<20)
	x, err := e.NewExact(numbers, nil, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	need := x.need
	small := d.engine(t, d.source(store.Buffered), need-1)
	x, _ = small.NewExact(numbers, nil, time.Second)
	var f *fault.Error
	if _, _, err := x.Room(2, 0); !errors.As(err, &f) || f.Kind != fault.Memory || f.Needed != need || f.Given != need-1 {
		t.Fatalf("too little: %v", err)
	}
	just := d.engine(t, d.source(store.Buffered), 4*need)
	var lent []*Result
	for {
		x, _ := just.NewExact(numbers, nil, time.Second)
		ok, scarce, err := x.Room(2, 0)
		if err != nil || !ok {
			t.Fatalf("no room beside %d batches: %v", len(lent), err)
		}
		r, err := x.Fill(time.Second, nil)
		if err != nil {
			t.Fatal(err)
		}
		if scarce {
			r.Release()
			break
		}
		lent = append(lent, r)
	}
	// Two workers can always read.
	first, _ := just.NewExact(numbers, nil, time.Second)
	second, _ := just.NewExact(numbers, nil, time.Second)
	for _, x := range []*Exact{first, second} {
		if ok, scarce, err := x.Room(2, 0); !ok || !scarce || err != nil {
			t.Fatalf("with %d batches kept: %v %v %v", len(lent), ok, scarce, err)
		}
	}
	if used, _, limit := just.Memory(); used > limit || len(lent) == 0 {
		t.Fatalf("%d bytes in use, %d allowed; %d batches lent", used, limit, len(lent))
	}
	first.Drop()
	second.Drop()
	for _, r := range lent {
		r.Release()
	}
	if just.exact.live != 0 {
		t.Errorf("%d bytes are missing", just.exact.live)
	}
}
