package node

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redox-loader/redox/golib/internal/plan"
	"github.com/redox-loader/redox/golib/internal/store"
)

// TestFirstBatchWaitsForItsOwnChunks: with every read taking a second and four at once, the first batch is there as
// soon as the chunks that it needs could be, and two more at most were begun.
func TestFirstBatchWaitsForItsOwnChunks(t *testing.T) {
	d := write(t, fixedShape(t, 6400, 50, 30))
	p := d.plan(t, plan.Spec{Shuffle: true, Window: 64, Partitions: 16})
	const batch = 64
	opens, chunks := p.Epoch(0).Opens(0), 0
	for o, ok := opens.Next(); ok && o.Position < batch; o, ok = opens.Next() {
		chunks++
	}
	for _, prefetch := range []int{0, 3} {
		synctest.Test(t, func(t *testing.T) {
			f, source := d.faulty(store.Buffered)
			f.Delay = time.Second
			e := d.engine(t, source, 8<<20)
			r := newRun(t, e, RunConfig{Plan: p, World: oneRank(batch), Prefetch: prefetch})
			begin := time.Now()
			if err := r.Start(0, 0); err != nil {
				t.Fatal(err)
			}
			got, _ := d.next(t, r, prefetch == 0)
			if !slices.Equal(got, want(p, 0)[:batch]) {
				t.Error("another order")
			}
			limit := time.Duration((chunks+defaultReaders-1)/defaultReaders) * time.Second
			if took := time.Since(begin); took > limit {
				t.Errorf("the first batch needs %d chunks and took %v, want %v", chunks, took, limit)
			}
			r.Close()
		})
	}
}

// TestBatchIsReadAhead: while the trainer computes for longer than a batch's chunks take, those of the next one are read,
// however many they are, though no slots are there that it could be put into.
func TestBatchIsReadAhead(t *testing.T) {
	d := write(t, fixedShape(t, 2000, 2, 3000))
	const batch = 40 // opens 20 chunks
	p := d.plan(t, plan.Spec{Shuffle: true, Window: 64})
	synctest.Test(t, func(t *testing.T) {
		f, source := d.faulty(store.Buffered)
		f.Delay = time.Second
		e := d.engine(t, source, 2<<20)
		r := newRun(t, e, RunConfig{Plan: p, World: oneRank(batch), Once: true})
		if err := r.Start(0, 0); err != nil {
			t.Fatal(err)
		}
		for number := range 2000 / batch {
			begin := time.Now()
			d.next(t, r, true)
			if took := time.Since(begin); took > 0 && number > 4 { // the window has opened
				t.Errorf("batch %d took %v", number, took)
			}
			time.Sleep((2*20/defaultReaders + 1) * time.Second) // the trainer computes
		}
		r.Close()
	})
}

// TestNextEpochIsReadAhead: when the last batch is taken, the first chunks of the next epoch are there already, and
// they count as that epoch's.
func TestNextEpochIsReadAhead(t *testing.T) {
	d := write(t, fixedShape(t, 1000, 10, 3000))
	p := d.plan(t, plan.Spec{Shuffle: true, Window: 8})
	synctest.Test(t, func(t *testing.T) {
		f, source := d.faulty(store.Buffered)
		f.Delay = time.Second
		e := d.engine(t, source, 1<<20) // a third of the data
		r := newRun(t, e, RunConfig{Plan: p, World: oneRank(20), Prefetch: 2})
		for epoch := range uint64(3) {
			begin := time.Now()
			if err := r.Start(epoch, 0); err != nil {
				t.Fatal(err)
			}
			var got []int64
			for {
				b, done := d.next(t, r, false)
				if done {
					break
				}
				if len(got) == 0 && epoch > 0 && time.Since(begin) > 0 {
					t.Errorf("the first batch of epoch %d took %v", epoch, time.Since(begin))
				}
				got = append(got, b...)
				time.Sleep(2 * time.Second) // the trainer computes
			}
			if !slices.Equal(got, want(p, epoch)) {
				t.Errorf("epoch %d: another order", epoch)
			}
			s, total := r.Stats()
			if s.ChunksRead+s.ChunkHits != 100 {
				t.Errorf("epoch %d: %d chunks read, %d found in memory (total %d)", epoch, s.ChunksRead, s.ChunkHits, total.ChunksRead)
			}
		}
		r.Close()
	})
}

// TestOnceReadsNothingBeyond the end of the epoch.
func TestOnceReadsNothingBeyond(t *testing.T) {
	d := write(t, fixedShape(t, 1000, 10, 3000))
	e := d.engine(t, d.source(store.Buffered), 1<<20)
	r := newRun(t, e, RunConfig{Plan: d.plan(t, plan.Spec{Shuffle: true, Window: 8}), World: oneRank(20), Prefetch: 2, Once: true})
	if err := r.Start(0, 0); err != nil {
		t.Fatal(err)
	}
	d.epoch(t, r, false)
	if _, total := r.Stats(); total.ChunksRead != 100 || total.Reads != 100 {
		t.Errorf("%d chunks in %d reads", total.ChunksRead, total.Reads)
	}
}

// TestStarvingReadsAround: storage is told that it may bring more than a chunk only if it is what the trainer waits for, and
// if all of the data set comes to this node.
func TestStarvingReadsAround(t *testing.T) {
	d := write(t, fixedShape(t, 1000, 10, 3000))
	for name, c := range map[string]struct {
		computes time.Duration
		subset   plan.Subset
		nodes    []int
		want     bool
	}{
		"a fast trainer":  {0, nil, []int{1}, true},
		"a slow trainer":  {20 * time.Second, nil, []int{1}, false},
		"a small subset":  {0, plan.RangeSubset(d.samples(), 0, 400), []int{1}, false},
		"one node of two": {0, nil, []int{1, 1}, false},
	} {
		p := d.plan(t, plan.Spec{Shuffle: true, Window: 8, Subset: c.subset})
		synctest.Test(t, func(t *testing.T) {
			f, source := d.faulty(store.Buffered)
			f.Delay = time.Second
			r := newRun(t, d.engine(t, source, 1<<20), RunConfig{Plan: p, World: plan.World{Nodes: c.nodes, BatchSize: 20}, Prefetch: 2, Once: true})
			if err := r.Start(0, 0); err != nil {
				t.Fatal(err)
			}
			for done := false; !done; _, done = d.next(t, r, false) {
				time.Sleep(c.computes)
			}
			r.Close()
			if got := f.Arounds > 0; got != c.want {
				t.Errorf("%s: Around was called %d times", name, f.Arounds)
			}
		})
	}
}
