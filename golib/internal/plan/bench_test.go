package plan_test

import (
	"fmt"
	"math"
	"runtime"
	"testing"

	"github.com/redox-loader/redox/golib/internal/plan"
)

// A data set of 14 million samples, as ImageNet-21k has.
func largePlan(b *testing.B, samples uint32, window int) *plan.Plan {
	return mustNew(b, plan.Spec{Samples: repeat(samples, 14_000_000/int(samples)), Seed: 1, Shuffle: true, Window: window})
}

func reportPerSample(b *testing.B, samples float64) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/samples, "ns/sample")
}

func BenchmarkWalk(b *testing.B) {
	for _, c := range []struct {
		samples uint32
		window  int
	}{{10, 128}, {76, 128}, {390, 128}, {2600, 128}, {390, 1024}} {
		b.Run(fmt.Sprintf("samples=%d/window=%d", c.samples, c.window), func(b *testing.B) {
			p := largePlan(b, c.samples, c.window)
			e := p.Epoch(0)
			w := e.Walk(0)
			picks := make([]plan.Pick, 256)
			b.ReportAllocs()
			for b.Loop() {
				if w.Next(picks) < len(picks) {
					w = e.Walk(0)
				}
			}
			reportPerSample(b, 256)
		})
	}
}

func BenchmarkOpens(b *testing.B) {
	for _, samples := range []uint32{10, 76, 390, 2600} {
		b.Run(fmt.Sprintf("samples=%d", samples), func(b *testing.B) {
			p := largePlan(b, samples, 128)
			e := p.Epoch(0)
			o := e.Opens(0)
			for b.Loop() {
				if _, ok := o.Next(); !ok {
					o = e.Opens(0)
				}
			}
			reportPerSample(b, float64(samples))
		})
	}
}

func BenchmarkDeal(b *testing.B) {
	p := largePlan(b, 390, 128)
	e := p.Epoch(0)
	for _, w := range []plan.World{
		{Nodes: []int{1}, BatchSize: 256},
		{Nodes: []int{8}, BatchSize: 256},
		{Nodes: []int{1, 1, 1, 1}, BatchSize: 256},
		{Nodes: []int{8, 8, 8, 8}, BatchSize: 256, Exchange: plan.Exchange{Mode: plan.Uniform}},
	} {
		b.Run(fmt.Sprintf("nodes=%v/exchange=%d", w.Nodes, w.Exchange.Mode), func(b *testing.B) {
			d := mustDeal(b, e, w, 0)
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := d.Next(); !ok {
					b.StopTimer()
					d = mustDeal(b, e, w, 0)
					b.StartTimer()
				}
			}
			reportPerSample(b, float64(w.BatchSize*w.Ranks()))
		})
	}
}

// Resuming at the end of 14 million samples.
func BenchmarkFastForward(b *testing.B) {
	p := largePlan(b, 390, 128)
	e := p.Epoch(0)
	for b.Loop() {
		e.Walk(p.Size() - 1)
	}
	reportPerSample(b, float64(p.Size()))
}

// BenchmarkEpoch deals the chunks.
func BenchmarkEpoch(b *testing.B) {
	p := mustNew(b, plan.Spec{Samples: repeat(390, 1_000_000), Seed: 1, Shuffle: true})
	epoch := uint64(0)
	for b.Loop() {
		p.Epoch(epoch)
		epoch++
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1e6, "ns/chunk")
}

// BenchmarkBillion plans 10^9 samples in 2.6 million chunks: all of their openings, a resume at the end, and, what
// takes twenty seconds, every single position.
func BenchmarkBillion(b *testing.B) {
	const each = 390
	samples := repeat(each, 1_000_000_000/each)
	before := heap()
	p := mustNew(b, plan.Spec{Samples: samples, Seed: 1, Shuffle: true})
	e := p.Epoch(0)
	perChunk := float64(heap()-before) / float64(len(samples))
	run := func(name string, plan func()) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				plan()
			}
			reportPerSample(b, float64(p.Size()))
			b.ReportMetric(perChunk, "B/chunk")
		})
	}
	run("opens", func() {
		o := e.Opens(0)
		for ok := true; ok; {
			_, ok = o.Next()
		}
	})
	run("resume", func() { e.Walk(p.Size() - 1) })
	run("walk", func() {
		w := e.Walk(0)
		for picks := make([]plan.Pick, 256); w.Next(picks) == len(picks); {
		}
	})
	runtime.KeepAlive(samples)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// What the benchmarks measure is also promised: memory per chunk, and that it does not grow with the samples.
func TestMemory(t *testing.T) {
	const chunks = 200_000
	for _, samples := range []uint32{20, 1_000_000, math.MaxUint32} {
		counts := repeat(samples, chunks)
		before := heap()
		p := mustNew(t, plan.Spec{Samples: counts, Shuffle: true})
		e := p.Epoch(0)
		w := e.Walk(0)
		w.Next(make([]plan.Pick, 100_000))
		o := e.Opens(0)
		for range 10 {
			o.Next()
		}
		perChunk := float64(heap()-before) / chunks
		t.Logf("%d samples a chunk: %.1f bytes a chunk", samples, perChunk)
		if perChunk > 64 {
			t.Errorf("%d samples a chunk: %.1f bytes a chunk, want at most 64", samples, perChunk)
		}
		runtime.KeepAlive([]any{p, e, w, o, counts})
	}
}
