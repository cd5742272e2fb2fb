package node

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redox-loader/redox/golib/internal/buffer"
	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/plan"
	"github.com/redox-loader/redox/golib/internal/store"
)

// TestMemoryStaysUnderTheLimit: data 20 times the limit go through it, each chunk once.
func TestMemoryStaysUnderTheLimit(t *testing.T) {
	d := write(t, fixedShape(t, 20000, 50, 2000)) // 40 MB in chunks of 100 kB
	const limit = 2 << 20
	e := d.engine(t, d.source(store.Buffered), limit)
	r := newRun(t, e, RunConfig{Plan: d.plan(t, plan.Spec{Shuffle: true, Window: 10}), World: oneRank(64), Prefetch: 2})
	chunks := int64(len(d.index.Entries))
	for epoch := range uint64(2) {
		if err := r.Start(epoch, 0); err != nil {
			t.Fatal(err)
		}
		if got := d.epoch(t, r, false); len(got) != 20000 {
			t.Fatalf("%d samples", len(got))
		}
		s, _ := r.Stats()
		if s.ChunksRead+s.ChunkHits != chunks || s.SingleReads != 0 {
			t.Errorf("epoch %d: %d chunks read and %d found, of %d; %d single reads", epoch, s.ChunksRead, s.ChunkHits, chunks, s.SingleReads)
		}
		stored := int64(0)
		for _, x := range d.index.Entries {
			stored += buffer.Pages(int64(x.Stored))
		}
		if s.BytesRead > stored {
			t.Errorf("%d bytes read of %d", s.BytesRead, stored)
		}
		if s.ResidentPeak > limit {
			t.Errorf("peak %d of %d", s.ResidentPeak, limit)
		}
	}
}

// TestLargeBatchesReadOnce: a batch whose samples vary in size, and which opens more chunks than any read-ahead, has room
// to be measured in what "auto" takes: nothing is read by itself.
func TestLargeBatchesReadOnce(t *testing.T) {
	d := write(t, mixedShape(t, 2000, 6))
	for _, spec := range []plan.Spec{{Shuffle: true, Window: 16, Partitions: 8}, {}} {
		for _, prefetch := range []int{0, 1, 3} {
			cfg := RunConfig{Plan: d.plan(t, spec), World: oneRank(300), Prefetch: prefetch}
			_, good, err := d.engine(t, d.source(store.Buffered), 1).Needed(cfg)
			if err != nil {
				t.Fatal(err)
			}
			r := newRun(t, d.engine(t, d.source(store.Buffered), good), cfg)
			for epoch := range uint64(2) {
				if err := r.Start(epoch, 0); err != nil {
					t.Fatal(err)
				}
				if got := d.epoch(t, r, prefetch == 0); !slices.Equal(got, want(cfg.Plan, epoch)) {
					t.Errorf("epoch %d: another order", epoch)
				}
				if s, _ := r.Stats(); s.SingleReads != 0 {
					t.Errorf("shuffle %v, prefetch %d, epoch %d: %d single reads", spec.Shuffle, prefetch, epoch, s.SingleReads)
				}
			}
		}
	}
}

// TestBatchesBehindAnother: where memory is short, a batch that is assembled ahead waits for those before it, which free
// some, instead of reading by itself what comes in a moment; and none waits for one that waits for it.
func TestBatchesBehindAnother(t *testing.T) {
	d := write(t, mixedShape(t, 2000, 6))
	cfg := RunConfig{Plan: d.plan(t, plan.Spec{Shuffle: true, Window: 16, Partitions: 8}), World: oneRank(30), Prefetch: 3}
	least, good, err := d.engine(t, d.source(store.Buffered), 1).Needed(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int64{least, least + 4*4096, least + 8*4096, good} {
		for _, direct := range []bool{false, true} {
			r := newRun(t, d.engine(t, d.source(store.Buffered), limit), cfg)
			if err := r.Start(0, 0); err != nil {
				t.Fatal(err)
			}
			var got []int64
			for small := (Batch{}); ; {
				if len(got)%60 == 0 { // gives a batch back to the workers that was claimed, or not
					small.Fields = make([]Column, len(r.rec.fields))
					if err := r.Next(&small, -1); fault.KindOf(err) == fault.EndOfEpoch {
						break
					}
				}
				n, done := d.next(t, r, direct)
				if done {
					break
				}
				got = append(got, n...)
			}
			if !slices.Equal(got, want(cfg.Plan, 0)) {
				t.Errorf("limit %d: another order", limit)
			}
			r.Close()
		}
	}
}

// TestSecondEpochReadsNothing: what fits the limit stays.
func TestSecondEpochReadsNothing(t *testing.T) {
	d := write(t, variableShape(t, 2000, 20))
	e := d.engine(t, d.source(store.Buffered), 4<<20)
	r := newRun(t, e, RunConfig{Plan: d.plan(t, plan.Spec{Shuffle: true}), World: oneRank(64), Prefetch: 3})
	for epoch := range uint64(3) {
		if err := r.Start(epoch, 0); err != nil {
			t.Fatal(err)
		}
		d.epoch(t, r, false)
		s, _ := r.Stats()
		want := int64(0)
		if epoch == 0 {
			want = int64(len(d.index.Entries))
		}
		if s.ChunksRead != want || s.Reads != want {
			t.Errorf("epoch %d: %d chunks in %d reads, want %d", epoch, s.ChunksRead, s.Reads, want)
		}
	}
}

// TestSpareMemoryKeepsItsShare: with room for half of the chunks about half are kept, as Belady would.
func TestSpareMemoryKeepsItsShare(t *testing.T) {
	d := write(t, fixedShape(t, 10000, 50, 80)) // 200 chunks of 8 KiB
	e := d.engine(t, d.source(store.Buffered), 100*8192+400<<10)
	r := newRun(t, e, RunConfig{Plan: d.plan(t, plan.Spec{Shuffle: true, Window: 10}), World: oneRank(50), Prefetch: 1})
	for epoch := range uint64(4) {
		if err := r.Start(epoch, 0); err != nil {
			t.Fatal(err)
		}
		d.epoch(t, r, false)
		if s, _ := r.Stats(); epoch > 0 && s.ChunksRead > 120 {
			t.Errorf("epoch %d read %d of 200 chunks with room for 100 and more", epoch, s.ChunksRead)
		}
	}
}

// TestTooLittleMemory: the error has both numbers and the largest window, and both are true.
func TestTooLittleMemory(t *testing.T) {
	d := write(t, fixedShape(t, 2000, 10, 1000))
	spec := plan.Spec{Shuffle: true, Window: 40}
	cfg := RunConfig{Plan: d.plan(t, spec), World: oneRank(8), Prefetch: 3}
	const given = 300 << 10
	e := d.engine(t, d.source(store.Buffered), given)
	_, err := e.NewRun(cfg)
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != fault.Memory || f.Given != given || f.Needed <= given || f.Window < 1 || f.Window >= 40 {
		t.Fatalf("got %+v", f)
	}
	least, good, err := e.Needed(cfg)
	if err != nil || least != f.Needed || good < least {
		t.Errorf("needed %d says the error, %d the question (%v)", f.Needed, least, err)
	}
	newRun(t, d.engine(t, d.source(store.Buffered), f.Needed), cfg).Close()
	if _, err := d.engine(t, d.source(store.Buffered), f.Needed-1).NewRun(cfg); err == nil {
		t.Error("one byte less than needed was accepted")
	}
	spec.Window = int(f.Window)
	cfg.Plan = d.plan(t, spec)
	newRun(t, e, cfg).Close()
	spec.Window++
	cfg.Plan = d.plan(t, spec)
	if _, err := e.NewRun(cfg); err == nil {
		t.Error("a larger window than the largest was accepted")
	}
}

// TestRunsShareAnEngine: two live iterators over one memory, each whole, and a third is refused if there is no room.
func TestRunsShareAnEngine(t *testing.T) {
	d := write(t, fixedShape(t, 1000, 10, 1000))
	p := d.plan(t, plan.Spec{Shuffle: true, Window: 8})
	cfg := RunConfig{Plan: p, World: oneRank(8), Prefetch: 1, Timeout: 10 * time.Second}
	e := d.engine(t, d.source(store.Buffered), 1)
	least, _, err := e.Needed(cfg)
	if err != nil {
		t.Fatal(err)
	}
	e = d.engine(t, d.source(store.Buffered), 2*least)
	a, b := newRun(t, e, cfg), newRun(t, e, cfg)
	if _, err := e.NewRun(cfg); fault.KindOf(err) != fault.Memory {
		t.Errorf("a third run: %v", err)
	}
	for i, r := range []*Run{a, b} {
		if err := r.Start(uint64(i), 0); err != nil {
			t.Fatal(err)
		}
	}
	var got [2][]int64
	for step := 0; step < 125; step++ {
		for i, r := range []*Run{a, b} {
			if i == 1 && step%2 == 0 {
				continue // at its own pace
			}
			n, _ := d.next(t, r, false)
			got[i] = append(got[i], n...)
		}
	}
	got[1] = append(got[1], d.epoch(t, b, false)...)
	for i := range got {
		if !slices.Equal(got[i], want(p, uint64(i))) {
			t.Errorf("run %d: another order", i)
		}
	}
	a.Close()
	newRun(t, e, cfg).Close()
}

// TestHoarder keeps every slot it can get: none is overwritten, Acquire says so when there is none, Next still works,
// and what is lent outlives run and engine.
func TestHoarder(t *testing.T) {
	d := write(t, mixedShape(t, 300, 10))
	rd := NewReader(d.source(store.Buffered), d.schema, &d.index, 0)
	e, err := NewEngine(rd, 1<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	rd.Close()
	p := d.plan(t, plan.Spec{Shuffle: true, Window: 8})
	r, err := e.NewRun(RunConfig{Plan: p, World: oneRank(16), Prefetch: 3, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	e.Close() // the run holds it
	if err := r.Start(0, 0); err != nil {
		t.Fatal(err)
	}
	var slots []*Slot
	var batches []Batch
	var got []int64
	for {
		var b Batch
		s, err := r.Acquire(&b, -1)
		if fault.KindOf(err) == fault.Range && err != nil {
			if b.N != 16 || b.Fields[1].Need != 128 {
				t.Errorf("needs: %+v", b)
			}
			n, _ := d.next(t, r, true)
			got = append(got, n...)
			if len(got) > 200 {
				break
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		slots, batches = append(slots, s), append(batches, b)
		got = append(got, b.Index[:b.N]...)
	}
	if len(slots) != 4 {
		t.Errorf("%d slots could be held, want 4", len(slots))
	}
	slots[1].Release()
	slots[1], batches[1] = slots[3], batches[3]
	slots, batches = slots[:3], batches[:3]
	got = append(got, d.epoch(t, r, false)...)
	if !slices.Equal(got, want(p, 0)) {
		t.Error("another order while slots were hoarded")
	}
	r.Close()
	for i := range batches {
		d.check(t, &batches[i])
		slots[i].Release()
	}
	if e.budget.Used() != 0 {
		t.Errorf("%d bytes are left", e.budget.Used())
	}
}

// TestLookup reads samples by number.
func TestLookup(t *testing.T) {
	d := write(t, mixedShape(t, 100, 10))
	r := NewReader(d.source(store.Buffered), d.schema, &d.index, 0)
	defer r.Close()
	rec, err := newRecord(d.schema, r.layout, nil)
	if err != nil {
		t.Fatal(err)
	}
	mem := d.memory(5, rec)
	numbers := []int64{99, 0, 55, 55, 10}
	if err := r.Read(numbers, nil, &mem, time.Second); err != nil || !slices.Equal(mem.Index, numbers) {
		t.Fatalf("%v, %v", mem.Index, err)
	}
	d.check(t, &mem)
	if source, key, err := r.Origin(42, time.Second); source != 1042 || key != "1042" || err != nil {
		t.Errorf("origin %d %q: %v", source, key, err)
	}
	for _, bad := range []int64{-1, 100} {
		if err := r.Read([]int64{bad}, nil, &mem, time.Second); fault.KindOf(err) != fault.Invalid {
			t.Errorf("sample %d: %v", bad, err)
		}
	}
}

// TestBatchesLargerThanPlanned: where sizes vary more than slots were planned for, batches wait for room, or are
// delivered into the caller's memory; none is lost, nothing hangs.
func TestBatchesLargerThanPlanned(t *testing.T) {
	big := func(n int64) []chunk.Value {
		size := 10
		if n%40 >= 20 {
			size = 20000
		}
		return []chunk.Value{{Data: pattern(n, size)}}
	}
	s := shape{400, 40, 5, chunk.None, []chunk.Field{parseField(t, "data", "bytes")}, big}
	d := write(t, s)
	for _, hold := range []bool{false, true} {
		cfg := RunConfig{Plan: d.plan(t, plan.Spec{}), World: oneRank(8), Prefetch: 2, Timeout: 10 * time.Second}
		e := d.engine(t, d.source(store.Buffered), 1)
		least, _, err := e.Needed(cfg)
		if err != nil {
			t.Fatal(err)
		}
		e = d.engine(t, d.source(store.Buffered), least)
		r := newRun(t, e, cfg)
		if err := r.Start(0, 0); err != nil {
			t.Fatal(err)
		}
		var got []int64
		var held *Slot
		for {
			var b Batch
			slot, err := r.Acquire(&b, -1)
			if ended(err) {
				break
			}
			if err != nil {
				if fault.KindOf(err) != fault.Range || b.Fields[0].Need == 0 {
					t.Fatalf("%v, needs %d", err, b.Fields[0].Need)
				}
				mem := d.memory(8, r.rec)
				mem.Fields[0].Data = make([]byte, b.Fields[0].Need)
				if err := r.Next(&mem, -1); err != nil {
					t.Fatal(err)
				}
				d.check(t, &mem)
				got = append(got, mem.Index[:mem.N]...)
				continue
			}
			d.check(t, &b)
			got = append(got, b.Index[:b.N]...)
			if hold && held == nil && b.Fields[0].Need > 100000 {
				held = slot
				continue
			}
			slot.Release()
		}
		if !slices.Equal(got, want(r.cfg.Plan, 0)) {
			t.Errorf("hold %v: another order", hold)
		}
		if held != nil {
			held.Release()
		}
		r.Close()
	}
}
