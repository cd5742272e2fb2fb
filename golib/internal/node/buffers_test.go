package node

import (
	"errors"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/plan"
	"github.com/redox-loader/redox/golib/internal/store"
)

// TestTooSmallBuffersConsumeNothing: every need is set, and the same batch comes next.
func TestTooSmallBuffersConsumeNothing(t *testing.T) {
	d := write(t, mixedShape(t, 100, 10))
	for _, prefetch := range []int{0, 2} {
		e := d.engine(t, d.source(store.Buffered), 1<<20)
		p := d.plan(t, plan.Spec{Shuffle: true, Window: 8})
		r := newRun(t, e, RunConfig{Plan: p, World: oneRank(10), Prefetch: prefetch})
		if err := r.Start(0, 0); err != nil {
			t.Fatal(err)
		}
		var got []int64
		for len(got) < 100 {
			for k := range 4 {
				mem := d.memory(10, r.rec)
				mem.Fields[k].Data = mem.Fields[k].Data[:3]
				err := r.Next(&mem, -1)
				if fault.KindOf(err) != fault.Range {
					t.Fatalf("3 bytes for field %d: %v", k, err)
				}
				small := Batch{CapSamples: 10, Index: make([]int64, 10), Fields: make([]Column, 4)}
				for i, c := range mem.Fields {
					if c.Need == 0 || mem.N != 10 {
						t.Fatalf("field %d needs nothing", i)
					}
					small.Fields[i] = c
					small.Fields[i].Data = make([]byte, c.Need)
				}
				if k == 3 {
					if err := r.Next(&small, -1); err != nil {
						t.Fatal(err)
					}
					d.check(t, &small)
					got = append(got, small.Index...)
				}
			}
		}
		if !slices.Equal(got, want(p, 0)) {
			t.Error("another order")
		}
	}
}

// TestFieldsOnly delivers two of four fields, in the order asked for.
func TestFieldsOnly(t *testing.T) {
	s := mixedShape(t, 100, 10)
	d := write(t, s)
	e := d.engine(t, d.source(store.Buffered), 1<<20)
	r := newRun(t, e, RunConfig{Plan: d.plan(t, plan.Spec{}), World: oneRank(10), Prefetch: 2, Fields: []int{3, 1}})
	if err := r.Start(0, 0); err != nil {
		t.Fatal(err)
	}
	all := d.value
	d.value = func(n int64) []chunk.Value { v := all(n); return []chunk.Value{v[3], v[1]} }
	if got := d.epoch(t, r, false); len(got) != 100 {
		t.Errorf("%d samples", len(got))
	}
}

// TestParts: who offers no memory is told the sizes, and who offers memory for each sample gets them there, whether the
// batch lay in a slot or not.
func TestParts(t *testing.T) {
	for _, codec := range []chunk.Codec{chunk.None, chunk.LZ4} {
		for prefetch := range 3 {
			s := mixedShape(t, 300, 30)
			s.codec = codec
			d := write(t, s)
			r := newRun(t, d.engine(t, d.source(store.Buffered), 4<<20), RunConfig{
				Plan: d.plan(t, plan.Spec{Seed: 3, Partitions: 4, Window: 4}), World: oneRank(16), Prefetch: prefetch,
			})
			if err := r.Start(0, 0); err != nil {
				t.Fatal(err)
			}
			seen := map[int64]bool{}
			for {
				b := d.memory(16, r.rec)
				parts, err := inParts(t, r, &b)
				if ended(err) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				for k, of := range parts { // as check wants it
					for _, part := range of {
						b.Fields[k].Data = append(b.Fields[k].Data, part...)
					}
				}
				d.check(t, &b)
				for _, number := range b.Index[:b.N] {
					seen[number] = true
				}
			}
			if len(seen) != 300 {
				t.Errorf("%d samples", len(seen))
			}
		}
	}
}

// inParts takes a batch whose fields of varying size have no memory but parts, once it is known how large those are.
func inParts(t *testing.T, r *Run, b *Batch) (map[int][][]byte, error) {
	t.Helper()
	parts := map[int][][]byte{}
	for k := range b.Fields {
		if !r.rec.fields[k].fixed {
			b.Fields[k].Data = nil
		}
	}
	if err := r.Next(b, -1); fault.KindOf(err) != fault.Range {
		return nil, err
	}
	for k := range b.Fields {
		c := &b.Fields[k]
		if r.rec.fields[k].fixed {
			continue
		}
		c.Parts = make([]unsafe.Pointer, b.CapSamples)
		for i := range b.N {
			part := make([]byte, c.Offsets[i+1]-c.Offsets[i])
			c.Parts[i] = unsafe.Pointer(unsafe.SliceData(part))
			parts[k] = append(parts[k], part)
		}
	}
	for k := range parts { // other sizes are refused, and said right
		right := b.Fields[k].Offsets[1]
		b.Fields[k].Offsets[1]++
		if err := r.Next(b, -1); fault.KindOf(err) != fault.Range || b.Fields[k].Offsets[1] != right {
			t.Fatalf("field %d: %v, %d bytes instead of %d", k, err, b.Fields[k].Offsets[1], right)
		}
	}
	return parts, r.Next(b, -1)
}

func TestPartsThatAreNone(t *testing.T) {
	d := write(t, mixedShape(t, 30, 30))
	r := newRun(t, d.engine(t, d.source(store.Buffered), 4<<20), RunConfig{Plan: d.plan(t, plan.Spec{}), World: oneRank(16)})
	if err := r.Start(0, 0); err != nil {
		t.Fatal(err)
	}
	for k := range r.rec.fields {
		b := d.memory(16, r.rec)
		c := &b.Fields[k]
		c.Parts = make([]unsafe.Pointer, 16)
		if err := r.Next(&b, -1); r.rec.fields[k].fixed && fault.KindOf(err) != fault.Invalid {
			t.Errorf("field %d of a fixed size: %v", k, err)
		} else if !r.rec.fields[k].fixed && fault.KindOf(err) != fault.Range {
			t.Errorf("field %d, no sizes: %v", k, err)
		}
		if r.rec.fields[k].fixed {
			continue
		}
		if err := r.Next(&b, -1); fault.KindOf(err) != fault.Invalid {
			t.Errorf("field %d, parts that are nowhere: %v", k, err)
		}
		c.Offsets = nil
		if err := r.Next(&b, -1); fault.KindOf(err) != fault.Invalid {
			t.Errorf("field %d, parts without offsets: %v", k, err)
		}
	}
	if numbers := d.epoch(t, r, true); len(numbers) != 30 {
		t.Errorf("%d samples", len(numbers))
	}
}

// TestBrokenOffInTheMiddle: what a try has gathered when it is broken off is there in the next one, in other memory, and
// nothing is read again, though the chunks that were used up have gone.
func TestBrokenOffInTheMiddle(t *testing.T) {
	for _, codec := range []chunk.Codec{chunk.None, chunk.LZ4} {
		s := mixedShape(t, 300, 5)
		s.codec = codec
		d := write(t, s)
		e := d.engine(t, d.source(store.Buffered), 4<<20)
		r := newRun(t, e, RunConfig{Plan: d.plan(t, plan.Spec{Seed: 3, Partitions: 4, Window: 4}), World: oneRank(48)})
		if err := r.Start(0, 0); err != nil {
			t.Fatal(err)
		}
		total := 0
		for _, first := range []int{1, 20, 47, 48} {
			r.mu.Lock()
			p, j := r.pass, r.pass.head()
			j.claim(0, taken)
			r.mu.Unlock()
			a := r.direct(p, &patience{limit: time.Second})
			b := d.memory(48, r.rec)
			if err := errors.Join(a.measure(j), r.rec.accept(&b, j)); err != nil {
				t.Fatal(err)
			}
			ops := j.ops
			j.ops = ops[:first]
			if err := a.write(j, b.Fields); err != nil {
				t.Fatal(err)
			}
			r.rec.keep(j, b.Fields)
			j.ops = ops
			p.disclaim(j)
			numbers, done := d.next(t, r, true)
			if done || len(numbers) != 48 {
				t.Fatalf("%d samples", len(numbers))
			}
			total += len(numbers)
		}
		if total += len(d.epoch(t, r, true)); total != 300 {
			t.Errorf("%d samples", total)
		}
		if singles := e.source.Counters().Ranges; singles != 0 {
			t.Errorf("%d samples were read by themselves", singles)
		}
	}
}
