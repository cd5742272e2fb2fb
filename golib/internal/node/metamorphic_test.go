package node

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/plan"
	"github.com/redox-loader/redox/golib/internal/store"
	"github.com/redox-loader/redox/golib/internal/store/storetest"
)

// delivered is an epoch as bytes: every batch's index and columns.
func (d *dataset) delivered(t testing.TB, r *Run, direct bool) []byte {
	t.Helper()
	var out []byte
	for {
		mem := d.memory(r.cfg.World.BatchSize, r.rec)
		var b Batch
		var s *Slot
		var err error
		if direct {
			b, err = mem, r.Next(&mem, -1)
			b.N = mem.N
			b.Fields = mem.Fields
		} else {
			s, err = r.Acquire(&b, -1)
		}
		if ended(err) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = fmt.Appendln(out, b.N, b.Index[:b.N])
		for k := range b.Fields {
			c := &b.Fields[k]
			out = append(out, c.Data[:c.Need]...)
			if c.Offsets != nil {
				out = fmt.Appendln(out, c.Offsets[:b.N+1])
			}
			if c.Valid != nil {
				out = append(out, c.Valid[:b.N]...)
			}
		}
		if s != nil {
			s.Release()
		}
	}
}

// TestSameBytesHoweverDelivered: budget, codec, prefetch, way of delivery, way of reading and faults of storage that
// pass do not change one byte of what is delivered.
func TestSameBytesHoweverDelivered(t *testing.T) {
	for name, s := range map[string]shape{
		"fixed": fixedShape(t, 500, 11, 100), "variable": variableShape(t, 500, 11), "mixed": mixedShape(t, 500, 11),
	} {
		t.Run(name, func(t *testing.T) {
			var first []byte
			for _, codec := range []chunk.Codec{chunk.None, chunk.LZ4} {
				s.codec = codec
				d := write(t, s)
				p := d.plan(t, plan.Spec{Seed: 3, Shuffle: true, Window: 10, Partitions: 4})
				for i := range 12 {
					prefetch, tight, faulty := []int{0, 1, 3}[i%3], i/3%2 == 0, i/6 == 0
					io := []store.IO{store.Buffered, store.DirectIO}[(i+i/6)%2]
					got := d.oneEpoch(t, p, prefetch, tight, io, faulty)
					if first == nil {
						first = got
					}
					if !bytes.Equal(got, first) {
						t.Fatalf("codec %v, prefetch %d, tight %v, %v, faulty %v: other bytes", codec, prefetch, tight, io, faulty)
					}
				}
			}
		})
	}
}

func (d *dataset) oneEpoch(t *testing.T, p *plan.Plan, prefetch int, tight bool, io store.IO, faulty bool) []byte {
	t.Helper()
	cfg := RunConfig{Plan: p, World: oneRank(32), Prefetch: prefetch}
	source := d.source(io)
	if faulty {
		names := make([]string, len(d.manifest.Shards))
		for i, s := range d.manifest.Shards {
			names[i] = s.Name
		}
		source = store.NewFlat(&storetest.Faulty{
			Files: store.NewLocal(d.dir, names, io, 0), Short: 4096 * 3,
			Fail: func(_ uint32, off int64, try int) error {
				if off%5 == 0 && try == 0 {
					return syscall.EIO
				}
				return nil
			},
			Flip: func(_ uint32, off int64, try int) bool { return off%3 == 0 && try == 1 },
		}, extents{&d.index})
	}
	limit := int64(64 << 20)
	if tight {
		r := NewReader(d.source(io), d.schema, &d.index, 0)
		least, _, err := r.Needed(cfg)
		if err != nil {
			t.Fatal(err)
		}
		limit = least
		r.Close()
	}
	e := d.engine(t, source, limit)
	r := newRun(t, e, cfg)
	if err := r.Start(2, 0); err != nil {
		t.Fatal(err)
	}
	out := d.delivered(t, r, prefetch == 0)
	if _, peak, _ := e.Memory(); peak > limit {
		t.Errorf("peak %d of %d", peak, limit)
	}
	r.Close()
	return out
}

// TestResumeAtEveryStep: an epoch begun at any batch goes on with exactly the rest.
func TestResumeAtEveryStep(t *testing.T) {
	d := write(t, variableShape(t, 300, 7))
	for _, shuffle := range []bool{true, false} {
		p := d.plan(t, plan.Spec{Seed: 9, Shuffle: shuffle, Window: 8, Partitions: 3})
		all := want(p, 1)
		e := d.engine(t, d.source(store.Buffered), 1<<20)
		r := newRun(t, e, RunConfig{Plan: p, World: oneRank(16), Prefetch: 2})
		for from := int64(0); from <= p.Size(); from += 16 {
			if err := r.Start(1, min(from, p.Size())); err != nil {
				t.Fatal(err)
			}
			if got := d.epoch(t, r, from%32 == 0); !slices.Equal(got, all[from:]) {
				t.Fatalf("from %d: %d samples, want %d, or another order", from, len(got), len(all[from:]))
			}
			if r.Position() != p.Size() {
				t.Fatalf("position %d at the end", r.Position())
			}
		}
	}
}

// TestRanksTogetherGetTheEpoch: any world delivers each sample once, without sockets, and in the global order.
func TestRanksTogetherGetTheEpoch(t *testing.T) {
	d := write(t, mixedShape(t, 403, 9))
	for _, nodes := range [][]int{{2}, {1, 1}, {1, 1, 1}, {2, 1}} {
		for _, shuffle := range []bool{true, false} {
			for _, drop := range []bool{true, false} {
				mode := plan.Off
				if drop {
					mode = plan.Uniform // without a network: sample by sample as well
				}
				p := d.plan(t, plan.Spec{Seed: 4, Shuffle: shuffle, Window: 12, Partitions: 4})
				w := plan.World{Nodes: nodes, BatchSize: 8, DropLast: drop, Pad: plan.PadMark, Exchange: plan.Exchange{Mode: mode}}
				seen := map[int64]int{}
				batches := int64(-1)
				for rank := range w.Ranks() {
					e := d.engine(t, d.source(store.Buffered), 8<<20)
					r := newRun(t, e, RunConfig{Plan: p, World: w, Rank: rank, Prefetch: 2})
					if err := r.Start(0, 0); err != nil {
						t.Fatal(err)
					}
					if batches >= 0 && r.Batches() != batches {
						t.Errorf("nodes %v: rank %d has %d batches, others %d", nodes, rank, r.Batches(), batches)
					}
					batches = r.Batches()
					for _, n := range d.epoch(t, r, false) {
						if n >= 0 {
							seen[n]++
						}
					}
					r.Close()
				}
				size := int(p.Size())
				if drop {
					size -= size % (8 * w.Ranks())
				}
				if len(seen) != size {
					t.Errorf("nodes %v, shuffle %v, drop %v: %d different samples of %d", nodes, shuffle, drop, len(seen), size)
				}
				for n, times := range seen {
					if times != 1 {
						t.Errorf("nodes %v, shuffle %v: sample %d came %d times", nodes, shuffle, n, times)
					}
				}
			}
		}
	}
}

// TestRandomConfigurations throws sizes together that nobody thought of: a batch larger than the data, one-sample
// chunks, more window than chunks, samples without bytes.
func TestRandomConfigurations(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for i := range 60 {
		samples, perChunk := 1+rng.IntN(120), 1+rng.IntN(9)
		kinds := []shape{fixedShape(t, samples, perChunk, 40), variableShape(t, samples, perChunk), mixedShape(t, samples, perChunk)}
		s := kinds[rng.IntN(3)]
		s.codec = chunk.Codec(rng.IntN(2))
		d := write(t, s)
		p := d.plan(t, plan.Spec{Seed: uint64(i), Shuffle: true, Window: rng.IntN(12), Partitions: rng.IntN(5)})
		cfg := RunConfig{Plan: p, World: oneRank(1 + rng.IntN(150)), Prefetch: rng.IntN(3), Timeout: 10 * time.Second}
		rd := NewReader(d.source(store.Buffered), d.schema, &d.index, 0)
		least, _, err := rd.Needed(cfg)
		if err != nil {
			t.Fatal(err)
		}
		rd.Close()
		e := d.engine(t, d.source(store.Buffered), least)
		r := newRun(t, e, cfg)
		direct := cfg.Prefetch == 0
		for epoch := range uint64(2) {
			if err := r.Start(epoch, 0); err != nil {
				t.Fatal(err)
			}
			var got []int64
			for {
				b, done := d.nextEither(t, r, direct)
				if done {
					break
				}
				got = append(got, b...)
			}
			if !slices.Equal(got, want(p, epoch)) {
				t.Fatalf("configuration %d, epoch %d: another order", i, epoch)
			}
		}
		r.Close()
	}
}
