package chunk

import (
	"crypto/sha256"
	"encoding/binary"
	"math"

	"github.com/pierrec/lz4/v4"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// maxKeys bounds the key bytes of one chunk, so that a table stays small beside its payload.
const maxKeys = 64 << 20

// MaxKey is the longest key in bytes.
const MaxKey = 1 << 16

// Builder collects raw samples and encodes them as one chunk. One goroutine at a time; reuse it by Reset.
type Builder struct {
	layout  *Layout
	raw     []byte
	ends    []uint64
	sources []uint64
	keys    []byte
	keyEnds []uint32
	keyed   bool
	wide    bool // forced by tests

	packed     []byte
	table      []byte
	compressor lz4.Compressor
}

// Encoded is a chunk ready to be written, once Place has given it its number: Head (header and table), then Payload.
// Both alias the Builder's memory.
type Encoded struct {
	Head, Payload []byte
	Content       [32]byte
	h             header
}

// Place writes the header: number and first sample count inside the part. It returns the index entry, of which Shard
// and Offset are the writer's to fill. Apart from Encode, so that chunks can be encoded before it is known how many
// samples lie before them.
func (e *Encoded) Place(number, first uint64) Entry {
	e.h.number, e.h.first = number, first
	e.h.append(e.Head[:0])
	return e.h.entry(Sum(e.Head[:HeaderSize-4]))
}

// NewBuilder returns an empty one.
func NewBuilder(l *Layout) *Builder { return &Builder{layout: l} }

// Reset forgets all samples and keeps the memory.
func (b *Builder) Reset() {
	b.raw, b.ends, b.sources, b.keys, b.keyEnds = b.raw[:0], b.ends[:0], b.sources[:0], b.keys[:0], b.keyEnds[:0]
	b.keyed = false
}

// Len is the number of samples, Raw their bytes.
func (b *Builder) Len() int    { return len(b.ends) }
func (b *Builder) Raw() uint64 { return uint64(len(b.raw)) }

// Takes says whether a sample still belongs into a chunk of `target` raw bytes.
func (b *Builder) Takes(raw uint64, key int, target int64) bool {
	return Takes(len(b.ends), uint64(len(b.raw)), len(b.keys), raw, key, target)
}

// Takes is the rule by which chunks are cut: before the sample that would exceed the target, so that a larger sample
// is a chunk by itself. The chunk has so many samples, raw bytes and bytes of keys. Codecs play no part.
func Takes(samples int, size uint64, keys int, raw uint64, key int, target int64) bool {
	return samples == 0 || samples < MaxSamples && size+raw <= uint64(target) && keys+key <= maxKeys
}

// Buffer lends the memory behind the samples so far, to append one raw sample to; Add takes it.
func (b *Builder) Buffer() []byte { return b.raw }

// Add takes a buffer from Buffer with one raw sample appended.
func (b *Builder) Add(source uint64, key string, buffer []byte) {
	b.raw = buffer
	b.ends = append(b.ends, uint64(len(b.raw)))
	b.sources = append(b.sources, source)
	b.keys = append(b.keys, key...)
	b.keyEnds = append(b.keyEnds, uint32(len(b.keys)))
	b.keyed = b.keyed || key != ""
}

// Sample is the i-th raw sample.
func (b *Builder) Sample(i int) []byte {
	start := uint64(0)
	if i > 0 {
		start = b.ends[i-1]
	}
	return b.raw[start:b.ends[i]]
}

// Encode makes the chunk of the samples so far; there must be some.
func (b *Builder) Encode(codec Codec) (Encoded, error) {
	n := len(b.ends)
	if n == 0 || n > MaxSamples {
		return Encoded{}, fault.New(fault.Internal, "a chunk can't have %d samples", n)
	}
	h := header{samples: uint32(n), raw: uint64(len(b.raw))}
	payload, ends, sums := b.raw, b.ends, b.sums()
	h.content, h.maxRaw = b.content(sums)
	if codec == LZ4 {
		if p, e, s := b.compress(); len(p) < len(b.raw) {
			payload, ends, sums = p, e, s
			h.flags |= flagPacked
		}
	}
	h.payload, h.paySum = uint64(len(payload)), Sum(payload)
	b.choose(&h)
	if err := b.encodeTable(&h, ends, sums); err != nil {
		return Encoded{}, err
	}
	h.table, h.tableSum = uint32(len(b.table)-HeaderSize), Sum(b.table[HeaderSize:])
	return Encoded{Head: b.table, Payload: payload, Content: h.content, h: h}, nil
}

// choose sets the flags that follow from the samples.
func (b *Builder) choose(h *header) {
	if b.keyed {
		h.flags |= flagKeys
	}
	if b.wide || h.payload > math.MaxUint32 || h.maxRaw > math.MaxUint32 {
		h.flags |= flagWide
	} else if h.flags&flagPacked == 0 && h.maxRaw*uint64(h.samples) == h.raw {
		h.flags |= flagEven
	}
}

func (b *Builder) sums() []uint32 {
	sums := make([]uint32, len(b.ends))
	for i := range sums {
		sums[i] = Sum(b.Sample(i))
	}
	return sums
}

// content digests the raw samples through their checksums; it is the same for every codec.
func (b *Builder) content(sums []uint32) (digest [32]byte, largest uint64) {
	bytes := make([]byte, 0, 12*len(sums))
	for i, sum := range sums {
		n := uint64(len(b.Sample(i)))
		largest = max(largest, n)
		bytes = binary.LittleEndian.AppendUint64(bytes, n)
		bytes = binary.LittleEndian.AppendUint32(bytes, sum)
	}
	return sha256.Sum256(bytes), largest
}

// compress stores every sample as prefix and lz4 block, or raw body where that saves too little.
func (b *Builder) compress() (payload []byte, ends []uint64, sums []uint32) {
	payload = b.packed[:0]
	ends, sums = make([]uint64, len(b.ends)), make([]uint32, len(b.ends))
	for i := range ends {
		at, raw := len(payload), b.Sample(i)
		payload = append(payload, raw[:b.layout.prefix]...)
		body := raw[b.layout.prefix:]
		var smaller bool
		if payload, smaller = compress(&b.compressor, payload, body); !smaller {
			payload = append(payload, body...)
		}
		ends[i], sums[i] = uint64(len(payload)), Sum(payload[at:])
	}
	b.packed = payload
	return payload, ends, sums
}

// encodeTable writes room for the header and the columns, in the order that type columns gives.
func (b *Builder) encodeTable(h *header, ends []uint64, sums []uint32) error {
	le := binary.LittleEndian
	t := append(b.table[:0], make([]byte, HeaderSize)...)
	size := func(n uint64) {
		if h.flags&flagWide != 0 {
			t = le.AppendUint64(t, n)
		} else {
			t = le.AppendUint32(t, uint32(n))
		}
	}
	for _, source := range b.sources {
		t = le.AppendUint64(t, source)
	}
	if h.flags&flagEven == 0 {
		for _, end := range ends {
			size(end)
		}
	}
	if h.flags&flagPacked != 0 {
		for i := range ends {
			size(uint64(len(b.Sample(i)) - b.layout.prefix))
		}
	}
	for _, sum := range sums {
		t = le.AppendUint32(t, sum)
	}
	if h.flags&flagKeys != 0 {
		for _, end := range b.keyEnds {
			t = le.AppendUint32(t, end)
		}
		t = append(t, b.keys...)
	}
	t = append(t, make([]byte, pad(uint64(len(t)), 8)-uint64(len(t)))...)
	b.table = t
	if len(t) > math.MaxUint32 {
		return fault.New(fault.Invalid, "chunk's table of %d bytes is too large", len(t))
	}
	return nil
}
