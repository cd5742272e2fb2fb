package chunk_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/redox-loader/redox/golib/internal/chunk"
)

// BenchmarkIndex opens ever larger chunk tables: parsed, checked, kept.
func BenchmarkIndex(b *testing.B) {
	const samples, stored, shard = 76, 8 << 20, 32
	for chunks := 100; chunks <= 1_000_000; chunks *= 10 {
		b.Run(fmt.Sprintf("chunks=%d", chunks), func(b *testing.B) {
			x := chunk.Index{Entries: make([]chunk.Entry, chunks)}
			for i := range x.Entries {
				x.Entries[i] = chunk.Entry{
					Shard: uint32(i / shard), Chunk: uint32(i), Offset: chunk.Align + uint64(i%shard)*(stored+chunk.Align),
					Stored: stored, Raw: stored, MaxRaw: stored / samples, First: uint64(i) * samples, Samples: samples,
					TableBytes: 24 * samples,
				}
			}
			bytes := x.Append(nil)
			x = chunk.Index{}
			before := used()
			var parsed chunk.Index
			for b.Loop() {
				var err error
				if parsed, err = chunk.ParseIndex(bytes); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(chunks), "ns/chunk")
			b.ReportMetric(float64(used())-float64(before), "B")
			runtime.KeepAlive(parsed)
			runtime.KeepAlive(bytes)
		})
	}
}

func used() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
