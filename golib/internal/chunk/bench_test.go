package chunk_test

import (
	"math/rand/v2"
	"testing"

	"github.com/redox-loader/redox/golib/internal/chunk"
)

// large is a chunk of 8 MiB of samples of (bytes, int), half of each compressible.
func large(b *testing.B, codec chunk.Codec, size int) ([]byte, chunk.Entry, *chunk.Layout, *chunk.Builder) {
	b.Helper()
	l := chunk.NewLayout(schema(b, "bytes", "int"))
	builder := chunk.NewBuilder(l)
	r := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, size)
	for i := uint64(0); builder.Takes(uint64(size+8), 0, 8<<20); i++ {
		for at := range size / 2 {
			data[at] = byte(r.Uint32())
		}
		raw, err := l.AppendSample(builder.Buffer(), []chunk.Value{{Data: data}, {Data: make([]byte, 8)}})
		if err != nil {
			b.Fatal(err)
		}
		builder.Add(i, "", raw)
	}
	e, err := builder.Encode(codec)
	if err != nil {
		b.Fatal(err)
	}
	entry := e.Place(0, 0)
	return append(append([]byte{}, e.Head...), e.Payload...), entry, l, builder
}

var codecs = []chunk.Codec{chunk.None, chunk.LZ4}

// BenchmarkParse opens a chunk of 8 MiB: all checksums, and (table) without that of the payload.
func BenchmarkParse(b *testing.B) {
	bytes, e, l, _ := large(b, chunk.LZ4, 3000)
	b.Run("whole", func(b *testing.B) {
		b.SetBytes(int64(e.Stored))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := chunk.Parse(bytes, e, l); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("table", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := chunk.ParseUnsummed(bytes, e, l); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(e.Samples), "ns/sample")
	})
}

// BenchmarkLookUp is what the engine does for each sample before it copies: where is it, and where are its fields.
func BenchmarkLookUp(b *testing.B) {
	bytes, e, l, _ := large(b, chunk.None, 3000)
	v, err := chunk.Parse(bytes, e, l)
	if err != nil {
		b.Fatal(err)
	}
	vals := make([]chunk.Value, 2)
	b.Run("stored", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			v.Stored(i % v.Len())
		}
	})
	b.Run("split", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			prefix, body, _ := v.Stored(i % v.Len())
			if l.Split(prefix, body, vals) != nil {
				b.Fatal("split")
			}
		}
	})
}

// BenchmarkDecode is Body and, for comparison, Check, in bytes of samples.
func BenchmarkDecode(b *testing.B) {
	for _, codec := range codecs {
		bytes, e, l, _ := large(b, codec, 3000)
		v, err := chunk.Parse(bytes, e, l)
		if err != nil {
			b.Fatal(err)
		}
		dst := make([]byte, 3008)
		b.Run(codec.String(), func(b *testing.B) {
			b.SetBytes(3008)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if v.Decode(i%v.Len(), dst) != nil {
					b.Fatal("decode")
				}
			}
		})
		b.Run(codec.String()+"/check", func(b *testing.B) {
			b.SetBytes(3008)
			for i := 0; b.Loop(); i++ {
				if v.Check(i%v.Len()) != nil {
					b.Fatal("check")
				}
			}
		})
	}
}

// BenchmarkEncode is one worker's work for a chunk of 8 MiB.
func BenchmarkEncode(b *testing.B) {
	for _, codec := range codecs {
		for _, size := range []int{100, 3000, 110_000} {
			_, _, _, builder := large(b, codec, size)
			b.Run(codec.String()+"/"+map[int]string{100: "100", 3000: "3KB", 110_000: "110KB"}[size], func(b *testing.B) {
				b.SetBytes(int64(builder.Raw()))
				for b.Loop() {
					if _, err := builder.Encode(codec); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
