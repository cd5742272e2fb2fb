package plan_test

import (
	"slices"
	"testing"

	"github.com/redox-loader/redox/golib/internal/perm"
	"github.com/redox-loader/redox/golib/internal/plan"
)

// reference is the algorithm of docs/plan.md written down a second time, one sample after the other, as plainly as
// possible and in one piece, to be read beside it: what the fast code must equal. It returns chunk and place in the chunk
// of every position.
func reference(s plan.Spec, window, partitions int, epoch uint64) (order [][2]uint32) {
	counts := make([]uint32, len(s.Samples))
	var chunks []uint32
	size := int64(0)
	for c, n := range s.Samples {
		counts[c] = n
		if s.Subset != nil {
			counts[c] = s.Subset.Count(plan.ChunkID(c))
		}
		if counts[c] > 0 {
			chunks = append(chunks, uint32(c))
			size += int64(counts[c])
		}
	}
	dealt := func(domain string) perm.Rand {
		if s.Sticky {
			return perm.New(perm.Seed("plan/sticky/"+domain, s.Seed))
		}
		return perm.New(perm.Seed("plan/"+domain, s.Seed, epoch))
	}
	turns := make([]int, partitions)
	for i := range turns {
		turns[i] = i
	}
	r := dealt("turns")
	perm.Shuffle(&r, turns)
	r = dealt("chunks")
	perm.Shuffle(&r, chunks)

	queues := make([][]uint32, partitions)
	loads := make([]int64, partitions)
	for _, c := range chunks {
		least := 0
		for j := range loads {
			if loads[j] < loads[least] {
				least = j
			}
		}
		queues[least] = append(queues[least], c)
		loads[least] += int64(counts[c])
	}
	type virtual struct {
		opens  int64 // round
		chunk  uint32
		left   []uint32 // samples in their order
		closed bool
	}
	virtuals := make([][]*virtual, partitions) // all of a partition, in the order of opening
	for i := range window {
		v := &virtual{}
		if first := max(1, window/8); i >= first {
			v.opens = int64(i-first) * size / int64(2*partitions*len(chunks))
		}
		virtuals[i%partitions] = append(virtuals[i%partitions], v)
	}
	open := make([][]*virtual, partitions)
	draws := make([]perm.Rand, partitions)
	for j := range draws {
		draws[j] = perm.New(perm.Seed("plan/draws", s.Seed, epoch, uint64(turns[j])))
		if s.Sticky {
			r := perm.New(perm.Seed("plan/queue", s.Seed, epoch, uint64(turns[j])))
			perm.Shuffle(&r, queues[j])
		}
	}
	orders := perm.Seed("plan/order", s.Seed, epoch)

	for round := int64(0); int64(len(order)) < size; round++ {
		for j := range partitions {
			for len(virtuals[j]) > 0 && virtuals[j][0].opens <= round {
				open[j] = append(open[j], virtuals[j][0])
				virtuals[j] = virtuals[j][1:]
			}
			if loads[j] == 0 || len(open[j]) == 0 {
				continue // has nothing left, or does not take part yet
			}
			for {
				i := 0
				if len(open[j]) > 1 {
					i = int(draws[j].Below(uint64(len(open[j]))))
				}
				v := open[j][i]
				if len(v.left) == 0 && len(queues[j]) > 0 {
					v.chunk, queues[j] = queues[j][0], queues[j][1:]
					o := perm.NewOrder(perm.Derive(orders, uint64(v.chunk)), counts[v.chunk])
					for k := range counts[v.chunk] {
						local := o.At(k)
						if s.Subset != nil {
							local = s.Subset.Local(plan.ChunkID(v.chunk), local)
						}
						v.left = append(v.left, local)
					}
				}
				if len(v.left) > 0 {
					order = append(order, [2]uint32{v.chunk, v.left[0]})
					v.left = v.left[1:]
					loads[j]--
					break
				}
				open[j][i] = open[j][len(open[j])-1]
				open[j] = open[j][:len(open[j])-1]
			}
		}
	}
	return order
}

func TestWalkEqualsReference(t *testing.T) {
	forSpecs(t, func(t *testing.T, s plan.Spec) {
		if !s.Shuffle {
			return
		}
		p := mustNew(t, s)
		for epoch := range uint64(2) {
			checkReference(t, s, p, epoch)
		}
	})
}

func checkReference(t *testing.T, s plan.Spec, p *plan.Plan, epoch uint64) {
	t.Helper()
	want := reference(s, p.Window(), p.Partitions(), epoch)
	for i, k := range walk(p.Epoch(epoch), p.Size(), 0) {
		if got := [2]uint32{uint32(k.Chunk), k.Sample}; got != want[i] {
			t.Fatalf("position %d: %v, the reference has %v", i, got, want[i])
		}
	}
}

// FuzzPlan holds all promises of an order on data sets, shapes and cursors that nobody thought of.
func FuzzPlan(f *testing.F) {
	f.Add([]byte{1}, uint64(0), uint16(0), uint16(0), uint16(0), false)
	f.Add([]byte{0, 5, 200, 3, 0, 1, 1}, uint64(1), uint16(3), uint16(2), uint16(77), true)
	f.Add(slices.Repeat([]byte{9, 31}, 40), uint64(1<<63), uint16(40), uint16(7), uint16(500), false)
	f.Add(slices.Repeat([]byte{1}, 300), uint64(7), uint16(300), uint16(300), uint16(150), true)
	f.Fuzz(func(t *testing.T, sizes []byte, seed uint64, window, partitions, from uint16, sticky bool) {
		if len(sizes) > 300 {
			return
		}
		s := plan.Spec{Seed: seed, Window: int(window), Partitions: min(int(partitions), 65535), Shuffle: true, Sticky: sticky}
		for _, n := range sizes {
			s.Samples = append(s.Samples, uint32(n))
		}
		p, err := plan.New(s)
		if err != nil {
			if total(s.Samples) > 0 {
				t.Fatal(err)
			}
			return
		}
		e := p.Epoch(seed % 5)
		picks := walk(e, p.Size(), 0)
		checkOnce(t, p, picks, numbers(s))
		checkChunks(t, p, picks)
		checkReference(t, s, p, seed%5)
		at := int64(from) % (p.Size() + 1)
		if !slices.Equal(walk(e, p.Size(), at), picks[at:]) {
			t.Fatalf("Walk(%d) differs from replay", at)
		}
		if !slices.Equal(opens(e, at), expectedOpens(picks, at)) {
			t.Fatalf("Opens(%d) differs from the picks", at)
		}
	})
}
