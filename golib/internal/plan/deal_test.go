package plan_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/plan"
)

func mustDeal(t testing.TB, e *plan.Epoch, w plan.World, from int64) *plan.Deal {
	t.Helper()
	d, err := e.Deal(w, from)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// batch is a GlobalBatch to keep.
type batch struct {
	first  int64
	picks  []plan.Pick
	padded int
	ranks  [][]plan.Item
}

func deals(d *plan.Deal) (all []batch) {
	for {
		b, ok := d.Next()
		if !ok {
			return all
		}
		all = append(all, copyBatch(b))
	}
}

func copyBatch(b *plan.GlobalBatch) batch {
	c := batch{first: b.First, picks: slices.Clone(b.Picks), padded: b.Padded}
	for _, items := range b.Ranks {
		c.ranks = append(c.ranks, slices.Clone(items))
	}
	return c
}

var nodeShapes = [][]int{{1}, {3}, {8}, {1, 1}, {2, 2}, {1, 1, 1}, {4, 1}, {2, 3, 1}, slices.Repeat([]int{1}, 20)}

// forWorlds runs a test for some data sets in many worlds.
func forWorlds(t *testing.T, test func(t *testing.T, p *plan.Plan, w plan.World)) {
	for _, layout := range []string{"one sample", "few", "prime", "uneven", "empty chunks"} {
		for _, shuffle := range []bool{true, false} {
			p := mustNew(t, plan.Spec{Samples: layouts[layout], Seed: 8, Shuffle: shuffle, Window: 12, Partitions: 6})
			for _, nodes := range nodeShapes {
				for _, size := range []int{1, 7, 64} {
					for _, pad := range []plan.Pad{plan.PadWrap, plan.PadNone, plan.PadMark} {
						if pad == plan.PadMark && size != 7 {
							continue // dealt as PadWrap is
						}
						w := plan.World{Nodes: nodes, BatchSize: size, Pad: pad}
						t.Run(fmt.Sprint(layout, shuffle, w), func(t *testing.T) {
							test(t, p, w)
							w.DropLast = true
							test(t, p, w)
						})
					}
				}
			}
		}
	}
}

// The global order is the plan's whatever the world, each sample of a batch goes to one rank, the ranks' shares are
// equal, and the arithmetic that len() is made of is right, from every cursor.
func TestDealInEveryWorld(t *testing.T) {
	forWorlds(t, func(t *testing.T, p *plan.Plan, w plan.World) {
		e := p.Epoch(2)
		picks := walk(e, p.Size(), 0)
		for _, from := range []int64{0, 1, p.Size() / 2, p.Size()} {
			d := mustDeal(t, e, w, from)
			batches := deals(d)
			if int64(len(batches)) != d.Batches() {
				t.Fatalf("from %d: %d batches, promised %d", from, len(batches), d.Batches())
			}
			checkCoverage(t, p, w, from, batches, picks)
			checkShares(t, w, d, batches)
		}
	})
}

func checkCoverage(t *testing.T, p *plan.Plan, w plan.World, from int64, batches []batch, picks []plan.Pick) {
	t.Helper()
	at := from
	for _, b := range batches {
		if b.first != at {
			t.Fatalf("a batch begins at %d, want %d", b.first, at)
		}
		samples := len(b.picks) - b.padded
		if !slices.Equal(b.picks[:samples], picks[at:at+int64(samples)]) {
			t.Fatalf("batch at %d: not the plan's order", at)
		}
		for i, k := range b.picks[samples:] {
			if k != picks[int64(i)%p.Size()] {
				t.Fatalf("batch at %d: padding %d is not from the epoch's beginning", at, i)
			}
		}
		at += int64(samples)
		seen := make([]bool, len(b.picks))
		for rank, items := range b.ranks {
			for _, item := range items {
				if seen[item.Pos] {
					t.Fatalf("batch at %d: place %d is given twice", b.first, item.Pos)
				}
				seen[item.Pos] = true
				if item.Pad != (int(item.Pos) >= samples) {
					t.Fatalf("batch at %d, rank %d: Pad is %v at place %d of %d", b.first, rank, item.Pad, item.Pos, samples)
				}
			}
		}
		if slices.Contains(seen, false) {
			t.Fatalf("batch at %d: a sample is given to nobody", b.first)
		}
	}
	global := int64(w.Ranks() * w.BatchSize)
	if left := p.Size() - at; left != 0 && (!w.DropLast || left >= global) {
		t.Fatalf("%d samples are not delivered", left)
	}
}

func checkShares(t *testing.T, w plan.World, d *plan.Deal, batches []batch) {
	t.Helper()
	for rank := range w.Ranks() {
		samples, mine := int64(0), int64(0)
		for i, b := range batches {
			n := len(b.ranks[rank])
			samples += int64(n)
			if n > 0 {
				mine++
			}
			if i < len(batches)-1 && n != w.BatchSize {
				t.Fatalf("rank %d gets %d samples of batch %d", rank, n, i)
			}
			most := len(b.ranks[0])
			if least := len(b.ranks[w.Ranks()-1]); n > most || n < least || most-least > 1 || w.Pad != plan.PadNone && most != least {
				t.Fatalf("rank %d gets %d samples of batch %d, the first rank %d, the last %d", rank, n, i, most, least)
			}
		}
		if samples != d.Samples(rank) || mine != d.RankBatches(rank) {
			t.Fatalf("rank %d got %d samples in %d batches, promised %d in %d", rank, samples, mine, d.Samples(rank), d.RankBatches(rank))
		}
	}
}

// Resuming in another world continues the same order; nothing is lost, nothing comes twice.
func TestDealAcrossWorlds(t *testing.T) {
	p := mustNew(t, plan.Spec{Samples: layouts["uneven"], Seed: 8, Shuffle: true, Window: 12, Partitions: 6})
	e := p.Epoch(0)
	want := walk(e, p.Size(), 0)
	var got []plan.Pick
	for i := 0; int64(len(got)) < p.Size(); i++ {
		w := plan.World{Nodes: nodeShapes[i%len(nodeShapes)], BatchSize: 1 + i%5}
		d := mustDeal(t, e, w, int64(len(got)))
		for range 1 + i%3 {
			if b, ok := d.Next(); ok {
				got = append(got, b.Picks[:len(b.Picks)-b.Padded]...)
				if d.Position() != int64(len(got)) {
					t.Fatalf("position %d after %d samples", d.Position(), len(got))
				}
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Error("changing worlds changed the order")
	}
}

// Local-first keeps everything at home that can be, moves each node's last samples only, between nodes-1 pairs at most.
func TestLocalFirst(t *testing.T) {
	p := mustNew(t, plan.Spec{Samples: uneven(300, 60), Seed: 8, Shuffle: true, Window: 40, Partitions: 14})
	e := p.Epoch(0)
	for _, nodes := range nodeShapes {
		d := mustDeal(t, e, plan.World{Nodes: nodes, BatchSize: 16}, 0)
		homes := p.Homes(nodes, 0)
		for _, b := range deals(d) {
			checkLocalFirst(t, d, nodes, homes, b)
		}
	}
}

func checkLocalFirst(t *testing.T, d *plan.Deal, nodes []int, homes []uint16, b batch) {
	t.Helper()
	own := make([][]int32, len(nodes)) // of each node its own samples, ascending
	for i, k := range b.picks[:len(b.picks)-b.padded] {
		own[homes[k.Partition]] = append(own[homes[k.Partition]], int32(i))
		if d.Home(k.Chunk) != homes[k.Partition] {
			t.Fatalf("the home of chunk %d is not that of its partition", k.Chunk)
		}
	}
	pairs := map[[2]uint16]bool{}
	rank := 0
	for node, ranks := range nodes {
		var got []int32
		for range ranks {
			for _, item := range b.ranks[rank] {
				got = append(got, item.Pos)
			}
			rank++
		}
		kept := min(len(got), len(own[node]))
		if !slices.Equal(got[:kept], own[node][:kept]) {
			t.Fatalf("nodes %v, batch at %d: node %d gets %v, its own are %v", nodes, b.first, node, got, own[node])
		}
		for _, pos := range got[kept:] {
			if int(pos) < len(b.picks)-b.padded {
				pairs[[2]uint16{homes[b.picks[pos].Partition], uint16(node)}] = true
			}
		}
	}
	if len(pairs) >= len(nodes) {
		t.Fatalf("nodes %v, batch at %d: %d pairs exchange samples", nodes, b.first, len(pairs))
	}
}

// exchange never changes the set of a global batch, only who gets what.
func TestExchangeKeepsTheBatch(t *testing.T) {
	p := mustNew(t, plan.Spec{Samples: repeat(100, 64), Seed: 8, Shuffle: true})
	e := p.Epoch(0)
	world := plan.World{Nodes: []int{2, 2}, BatchSize: 32}
	local := deals(mustDeal(t, e, world, 0))
	homes := p.Homes(world.Nodes, 0)
	away := func(x plan.Exchange) float64 {
		w := world
		w.Exchange = x
		batches := deals(mustDeal(t, e, w, 0))
		crossed, moved, n := 0, 0, 0
		for i, b := range batches {
			if !slices.Equal(b.picks, local[i].picks) {
				t.Fatalf("%+v changed the set of batch %d", x, i)
			}
			for rank, items := range b.ranks {
				for j, item := range items {
					n++
					if int(homes[b.picks[item.Pos].Partition]) != rank/2 {
						crossed++
					}
					if item != local[i].ranks[rank][j] {
						moved++
					}
				}
			}
		}
		if share := float64(moved) / float64(n); share > x.Fraction+0.01 && x.Mode != plan.Uniform {
			t.Errorf("%+v moved %.3f of the samples", x, share)
		}
		checkCoverage(t, p, w, 0, batches, walk(e, p.Size(), 0))
		return float64(crossed) / float64(n)
	}
	for _, c := range []struct {
		exchange plan.Exchange
		lo, hi   float64
	}{
		{plan.Exchange{Mode: plan.Local}, 0, 0.012},
		{plan.Exchange{Mode: plan.Off}, 0, 0.012},
		{plan.Exchange{Fraction: 0.2}, 0.09, 0.12},
		{plan.Exchange{Mode: plan.Uniform}, 0.48, 0.52},
		{plan.Exchange{Fraction: 1}, 0.48, 0.52},
	} {
		if share := away(c.exchange); share < c.lo || share > c.hi {
			t.Errorf("%+v: %.4f of the samples cross, want %v to %v", c.exchange, share, c.lo, c.hi)
		}
	}
}

// A resumed run deals the same samples to the same ranks as one that was not interrupted.
func TestDealFromBatchBoundary(t *testing.T) {
	p := mustNew(t, plan.Spec{Samples: layouts["prime"], Seed: 8, Shuffle: true, Window: 12, Partitions: 6})
	for _, x := range []plan.Exchange{{}, {Mode: plan.Uniform}, {Fraction: 0.3}} {
		w := plan.World{Nodes: []int{2, 1}, BatchSize: 9, Exchange: x}
		e := p.Epoch(1)
		all := deals(mustDeal(t, e, w, 0))
		for i, b := range all {
			rest := deals(mustDeal(t, e, w, b.first))
			skipped := mustDeal(t, e, w, 0)
			skipped.Skip(int64(i))
			for j, other := range [][]batch{rest, deals(skipped)} {
				if fmt.Sprint(other) != fmt.Sprint(all[i:]) {
					t.Fatalf("%+v: batch %d differs (%d)", x, i, j)
				}
			}
		}
		w.DropLast = true
		full := mustDeal(t, e, w, 0)
		full.Skip(full.Batches())
		if b, ok := full.Next(); ok {
			t.Errorf("a batch of %d samples after the last full one", len(b.Picks))
		}
		beyond := mustDeal(t, e, w, 0)
		beyond.Skip(math.MaxInt64)
		if _, ok := beyond.Next(); ok {
			t.Error("a batch after the end")
		}
	}
}

// In stored order a gather of the ranks restores the order, and a chunk's home is who takes its first position.
func TestDealStoredOrder(t *testing.T) {
	p := mustNew(t, plan.Spec{Samples: layouts["uneven"]})
	e := p.Epoch(0)
	for _, nodes := range nodeShapes {
		for _, pad := range []plan.Pad{plan.PadWrap, plan.PadNone} {
			for _, from := range []int64{0, 13, p.Size() - 5} {
				w := plan.World{Nodes: nodes, BatchSize: 5, Pad: pad, Exchange: plan.Exchange{Mode: plan.Uniform}}
				d := mustDeal(t, e, w, from)
				home := map[plan.ChunkID]uint16{}
				for _, b := range deals(d) {
					place := int32(0)
					rank := 0
					for node, ranks := range nodes {
						for range ranks {
							for _, item := range b.ranks[rank] {
								if item.Pos != place {
									t.Fatalf("rank %d gets place %d, want %d", rank, item.Pos, place)
								}
								place++
								c := b.picks[item.Pos].Chunk
								if _, seen := home[c]; !seen && !item.Pad {
									home[c] = uint16(node)
								}
							}
							rank++
						}
					}
				}
				for c, node := range home {
					if d.Home(c) != node {
						t.Fatalf("nodes %v, from %d: the home of chunk %d is %d, want %d", nodes, from, c, d.Home(c), node)
					}
				}
			}
		}
	}
}

func TestHomesFollowRanks(t *testing.T) {
	p := mustNew(t, plan.Spec{Samples: repeat(10, 200), Seed: 1, Shuffle: true, Window: 64})
	for _, c := range []struct {
		nodes []int
		want  []int
	}{
		{[]int{1}, []int{64}},
		{[]int{1, 1, 1, 1}, []int{16, 16, 16, 16}},
		{[]int{2, 2, 2}, []int{22, 21, 21}},
		{[]int{3, 1}, []int{48, 16}},
		{[]int{8, 8, 4, 4, 8}, []int{16, 16, 8, 8, 16}},
		{slices.Repeat([]int{1}, 70), append(slices.Repeat([]int{1}, 64), 0, 0, 0, 0, 0, 0)},
	} {
		got := make([]int, len(c.nodes))
		for _, node := range p.Homes(c.nodes, 0) {
			got[node]++
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("nodes %v own %v partitions, want %v", c.nodes, got, c.want)
		}
	}
}

func TestDealRefuses(t *testing.T) {
	p := mustNew(t, plan.Spec{Samples: layouts["few"], Shuffle: true})
	for _, c := range []struct {
		world plan.World
		from  int64
		kind  fault.Kind
	}{
		{plan.World{BatchSize: 1}, 0, fault.Invalid},
		{plan.World{Nodes: []int{1, 0}, BatchSize: 1}, 0, fault.Invalid},
		{plan.World{Nodes: []int{1}}, 0, fault.Invalid},
		{plan.World{Nodes: []int{1 << 20}, BatchSize: 1 << 20}, 0, fault.Invalid},
		{plan.World{Nodes: []int{1}, BatchSize: 1, Exchange: plan.Exchange{Fraction: 1.5}}, 0, fault.Invalid},
		{plan.World{Nodes: []int{1}, BatchSize: 1, Exchange: plan.Exchange{Fraction: math.NaN()}}, 0, fault.Invalid},
		{plan.World{Nodes: []int{1}, BatchSize: 1}, -1, fault.State},
		{plan.World{Nodes: []int{1}, BatchSize: 1}, p.Size() + 1, fault.State},
	} {
		if _, err := p.Epoch(0).Deal(c.world, c.from); !errors.Is(err, fault.Of(c.kind)) {
			t.Errorf("%+v from %d: %v", c.world, c.from, err)
		}
	}
}
