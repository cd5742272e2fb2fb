package plan

import "testing"

func TestSmoke(t *testing.T) {
	p, err := New(Spec{Samples: []uint32{7, 3, 0, 100, 20, 1, 55, 31, 2, 2, 2, 9}, Seed: 4, Shuffle: true, Window: 6, Partitions: 3})
	if err != nil {
		t.Fatal(err)
	}
	e := p.Epoch(0)
	all := make([]Pick, p.Size()+5)
	n := e.Walk(0).Next(all)
	if int64(n) != p.Size() {
		t.Fatal(n)
	}
	seen := map[int64]bool{}
	for _, k := range all[:n] {
		seen[p.Number(k.Chunk, k.Sample)] = true
	}
	if len(seen) != n {
		t.Fatal(len(seen), n)
	}
	for from := int64(0); from <= p.Size(); from++ {
		rest := make([]Pick, p.Size()-from)
		e.Walk(from).Next(rest)
		for i := range rest {
			if rest[i] != all[from+int64(i)] {
				t.Fatal(from, i)
			}
		}
		o := e.Opens(from)
		opened := map[ChunkID]bool{}
		last := int64(-1)
		for {
			x, ok := o.Next()
			if !ok {
				break
			}
			if all[x.Position].Chunk != x.Chunk || x.Position <= last || opened[x.Chunk] {
				t.Fatal(from, x, all[x.Position])
			}
			last = x.Position
			opened[x.Chunk] = true
		}
		for _, k := range rest {
			if !opened[k.Chunk] {
				t.Fatal(from, k)
			}
		}
	}
	d, err := e.Deal(World{Nodes: []int{2, 1}, BatchSize: 4}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for {
		b, ok := d.Next()
		if !ok {
			break
		}
		if b.First > 220 {
			t.Log(b.First, len(b.Picks), b.Padded, b.Ranks)
		}
	}
}

func BenchmarkWalk(b *testing.B) {
	samples := make([]uint32, 40000)
	for i := range samples {
		samples[i] = 390
	}
	p, _ := New(Spec{Samples: samples, Shuffle: true})
	e := p.Epoch(0)
	w := e.Walk(0)
	buf := make([]Pick, 256)
	b.ReportAllocs()
	for b.Loop() {
		if w.Next(buf) == 0 {
			w = e.Walk(0)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/256, "ns/sample")
}

func BenchmarkOpens(b *testing.B) {
	samples := make([]uint32, 40000)
	for i := range samples {
		samples[i] = 390
	}
	p, _ := New(Spec{Samples: samples, Shuffle: true})
	e := p.Epoch(0)
	o := e.Opens(0)
	for b.Loop() {
		if _, ok := o.Next(); !ok {
			o = e.Opens(0)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/390, "ns/sample")
}

func BenchmarkSeek(b *testing.B) {
	samples := make([]uint32, 40000)
	for i := range samples {
		samples[i] = 390
	}
	p, _ := New(Spec{Samples: samples, Shuffle: true})
	e := p.Epoch(0)
	for b.Loop() {
		e.Walk(14_000_000)
	}
}
