package plan_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/redox-loader/redox/golib/internal/plan"
)

// Exactly once, read once, bounded memory: what every order must be, whatever the data set.
func TestEveryOrderKeepsItsPromises(t *testing.T) {
	forSpecs(t, func(t *testing.T, s plan.Spec) {
		p := mustNew(t, s)
		want := numbers(s)
		if p.Size() != int64(len(want)) {
			t.Fatalf("size %d, want %d", p.Size(), len(want))
		}
		for epoch := range uint64(2) {
			picks := walk(p.Epoch(epoch), p.Size(), 0)
			checkOnce(t, p, picks, want)
			checkChunks(t, p, picks)
		}
	})
}

func checkOnce(t *testing.T, p *plan.Plan, picks []plan.Pick, want []int64) {
	t.Helper()
	got := make([]int64, len(picks))
	for i, k := range picks {
		got[i] = p.Number(k.Chunk, k.Sample)
		if c, sample := p.Locate(got[i]); c != k.Chunk || sample != k.Sample {
			t.Fatalf("Locate(%d) = %d, %d, want %d, %d", got[i], c, sample, k.Chunk, k.Sample)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Fatal("not every sample exactly once")
	}
}

// checkChunks checks that no more chunks are open than the window, and that Last comes when a chunk is used up.
func checkChunks(t *testing.T, p *plan.Plan, picks []plan.Pick) {
	t.Helper()
	left := map[plan.ChunkID]uint32{}
	partition := map[plan.ChunkID]uint16{}
	open := 0
	for i, k := range picks {
		if _, seen := left[k.Chunk]; !seen {
			left[k.Chunk] = p.Count(k.Chunk)
			partition[k.Chunk] = k.Partition
			open++
		}
		if open > p.Window() {
			t.Fatalf("position %d: %d chunks are open, window is %d", i, open, p.Window())
		}
		left[k.Chunk]--
		if k.Last != (left[k.Chunk] == 0) {
			t.Fatalf("position %d: Last is %v with %d samples left", i, k.Last, left[k.Chunk])
		}
		if k.Last {
			open--
		}
		if partition[k.Chunk] != k.Partition || int(k.Partition) >= p.Partitions() {
			t.Fatalf("position %d: chunk %d in partition %d", i, k.Chunk, k.Partition)
		}
	}
	if len(left) != p.Chunks() {
		t.Fatalf("%d chunks were opened, want %d", len(left), p.Chunks())
	}
}

// Fast-forward is replay, and Opens tells what Walk will do, from everywhere.
func TestWalkAndOpensFromEverywhere(t *testing.T) {
	forSpecs(t, func(t *testing.T, s plan.Spec) {
		p := mustNew(t, s)
		e := p.Epoch(3)
		picks := walk(e, p.Size(), 0)
		for _, from := range froms(p.Size()) {
			if w := e.Walk(from); w.Position() != from {
				t.Fatalf("Walk(%d) is at %d", from, w.Position())
			}
			if !slices.Equal(walk(e, p.Size(), from), picks[from:]) {
				t.Fatalf("Walk(%d) differs from replay", from)
			}
			if got, want := opens(e, from), expectedOpens(picks, from); !slices.Equal(got, want) {
				t.Fatalf("Opens(%d)\n got %v\nwant %v", from, got, want)
			}
		}
	})
}

// A fast-forward long enough to use goroutines.
func TestWalkFromFarAhead(t *testing.T) {
	p := mustNew(t, plan.Spec{Samples: uneven(3000, 300), Seed: 9, Shuffle: true})
	e := p.Epoch(1)
	picks := walk(e, p.Size(), 0)
	for _, from := range []int64{p.Size() / 3, p.Size() / 2, p.Size() - 100} {
		if !slices.Equal(walk(e, p.Size(), from), picks[from:]) {
			t.Fatalf("Walk(%d) differs from replay", from)
		}
	}
}

func TestWalkBeyondTheEnds(t *testing.T) {
	p := mustNew(t, plan.Spec{Samples: layouts["uneven"], Shuffle: true})
	e := p.Epoch(0)
	if w := e.Walk(-5); w.Position() != 0 {
		t.Error("a negative position is not the beginning")
	}
	w := e.Walk(p.Size() + 5)
	if n := w.Next(make([]plan.Pick, 3)); n != 0 || w.Position() != p.Size() {
		t.Errorf("%d picks after the end, at %d", n, w.Position())
	}
	if _, ok := e.Opens(p.Size()).Next(); ok {
		t.Error("an opening after the end")
	}
}

// Plans and epochs are shared by all goroutines of an engine (run with -race).
func TestConcurrentUse(t *testing.T) {
	p := mustNew(t, plan.Spec{Samples: uneven(500, 300), Seed: 9, Shuffle: true})
	e := p.Epoch(1)
	want := walk(e, p.Size(), 0)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			from := p.Size() / 4 * int64(i)
			if !slices.Equal(walk(e, p.Size(), from), want[from:]) {
				t.Errorf("Walk(%d) differs", from)
			}
			if !slices.Equal(opens(e, from), expectedOpens(want, from)) {
				t.Errorf("Opens(%d) differs", from)
			}
			if e.NextUse(want[from].Chunk) < 0 || p.Epoch(uint64(i)).Walk(from).Position() != from {
				t.Error("NextUse or another epoch")
			}
		})
	}
	wg.Wait()
}

func TestStoredOrder(t *testing.T) {
	samples := layouts["empty chunks"]
	p := mustNew(t, plan.Spec{Samples: samples, Seed: 77, Window: 5})
	for i, k := range walk(p.Epoch(4), p.Size(), 0) {
		if n := p.Number(k.Chunk, k.Sample); n != int64(i) {
			t.Fatalf("position %d is sample %d", i, n)
		}
	}
	if p.Window() != 1 || p.Partitions() != 1 {
		t.Error("window and partitions play no part in stored order")
	}
}

func TestOrderDependsOnSeedEpochAndShape(t *testing.T) {
	base := plan.Spec{Samples: repeat(50, 60), Seed: 1, Shuffle: true, Window: 20, Partitions: 10}
	order := func(s plan.Spec, epoch uint64) []plan.Pick {
		p := mustNew(t, s)
		return walk(p.Epoch(epoch), p.Size(), 0)
	}
	want := order(base, 0)
	if !slices.Equal(order(base, 0), want) {
		t.Error("the same Spec gave another order")
	}
	others := map[string]plan.Spec{}
	for name, change := range map[string]func(*plan.Spec){
		"seed":       func(s *plan.Spec) { s.Seed = 2 },
		"window":     func(s *plan.Spec) { s.Window = 21 },
		"partitions": func(s *plan.Spec) { s.Partitions = 11 },
		"sticky":     func(s *plan.Spec) { s.Sticky = true },
		"shuffle":    func(s *plan.Spec) { s.Shuffle = false },
	} {
		s := base
		change(&s)
		others[name] = s
	}
	for name, s := range others {
		if slices.Equal(order(s, 0), want) {
			t.Errorf("%s does not change the order", name)
		}
	}
	if slices.Equal(order(base, 1), want) {
		t.Error("the epoch does not change the order")
	}
	named := base
	named.Dataset = "fingerprint"
	if !slices.Equal(order(named, 0), want) {
		t.Error("the fingerprint changes the order")
	}
}

// In a sticky plan a chunk has one partition in all epochs, and a partition one turn, so that nodes can keep chunks.
func TestStickyKeepsPartitions(t *testing.T) {
	for _, sticky := range []bool{true, false} {
		p := mustNew(t, plan.Spec{Samples: layouts["uneven"], Seed: 5, Shuffle: true, Window: 16, Partitions: 8, Sticky: sticky})
		var before map[plan.ChunkID]uint16
		same := true
		for epoch := range uint64(4) {
			now := map[plan.ChunkID]uint16{}
			for _, k := range walk(p.Epoch(epoch), p.Size(), 0) {
				now[k.Chunk] = k.Partition
			}
			for c, partition := range before {
				same = same && now[c] == partition
			}
			before = now
		}
		if same != sticky {
			t.Errorf("sticky %v: chunks kept their partitions: %v", sticky, same)
		}
		nodes := []int{2, 2}
		if kept := slices.Equal(p.Homes(nodes, 0), p.Homes(nodes, 1)); kept != sticky {
			t.Errorf("sticky %v: partitions kept their homes: %v", sticky, kept)
		}
	}
}

// The dealing balances samples, so that the partitions end together.
func TestPartitionsAreBalanced(t *testing.T) {
	p := mustNew(t, plan.Spec{Samples: uneven(2000, 500), Seed: 1, Shuffle: true})
	loads := make([]int64, p.Partitions())
	for _, k := range walk(p.Epoch(0), p.Size(), 0) {
		loads[k.Partition]++
	}
	if spread := slices.Max(loads) - slices.Min(loads); spread >= 500 {
		t.Errorf("partitions differ by %d samples, more than a chunk", spread)
	}
}

func TestNextUse(t *testing.T) {
	forSpecs(t, func(t *testing.T, s plan.Spec) {
		p := mustNew(t, s)
		e := p.Epoch(0)
		latest := map[uint16]int64{}
		opened := map[plan.ChunkID]bool{}
		for _, o := range opens(e, 0) {
			use := e.NextUse(o.Chunk)
			if use < latest[o.Partition] || use >= p.Size() {
				t.Fatalf("chunk %d, opened at %d: estimate %d after %d", o.Chunk, o.Position, use, latest[o.Partition])
			}
			if !s.Shuffle && use != o.Position {
				t.Fatalf("chunk %d: stored order opens it at %d, not %d", o.Chunk, o.Position, use)
			}
			latest[o.Partition] = use
			opened[o.Chunk] = true
		}
		for c := range s.Samples {
			if !opened[plan.ChunkID(c)] && e.NextUse(plan.ChunkID(c)) != -1 {
				t.Fatalf("chunk %d is never opened", c)
			}
		}
	})
}

// On real shapes the estimate is a few chunks' worth off, which is what choosing between chunks to keep needs.
func TestNextUseIsClose(t *testing.T) {
	for _, window := range []int{64, 128, 512, 1024} {
		p := mustNew(t, plan.Spec{Samples: repeat(100, 4096), Seed: 1, Shuffle: true, Window: window})
		e := p.Epoch(0)
		var off, signed float64
		all := opens(e, 0)
		for _, o := range all {
			d := float64(e.NextUse(o.Chunk)-o.Position) / float64(p.Size())
			off += max(d, -d)
			signed += d
		}
		off, signed = off/float64(len(all)), signed/float64(len(all))
		t.Logf("window %d: mean error %.4f of an epoch, bias %+.4f", window, off, signed)
		if off > 0.02 {
			t.Errorf("window %d: mean error %.4f of an epoch", window, off)
		}
	}
}
