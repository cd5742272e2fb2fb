package node

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/plan"
	"github.com/redox-loader/redox/golib/internal/store"
)

// Samples that are asked for together are often neighbours in a chunk: what lies side by side, or nearly so, is read by
// one request.
const (
	spanGap  = 16 << 10 // bytes between two samples that are read for nothing: a request costs about as much
	spanSize = 4 << 20  // bytes from which on a new request begins, so that several are in flight
)

// lookup is samples by number on their way: where they lie, and after read what is stored there.
type lookup struct {
	reader *Reader
	rec    *record
	j      *job
	tables map[plan.ChunkID]*table
	spans  []span
	stage  int64 // bytes that the spans take together
}

// span is a range of a chunk with neighbouring samples in it.
type span struct {
	table    *table
	chunk    uint32
	off, end uint64
	samples  []part
}

// part is a sample in a span.
type part struct {
	sample   uint32
	off, end uint64 // in the chunk
	fetch    *fetch
}

// look finds where samples lie. It waits for the tables of their chunks, but reads no samples. want are fields by their
// place in the schema, nil means all.
func (r *Reader) look(numbers []int64, want []int, pat *patience) (*lookup, error) {
	rec, err := newRecord(r.schema, r.layout, want)
	if err != nil {
		return nil, err
	}
	j := &job{n: len(numbers), index: slices.Clone(numbers), fetched: make([]*fetch, len(numbers))}
	l := &lookup{reader: r, rec: rec, j: j, tables: map[plan.ChunkID]*table{}}
	for i, number := range numbers {
		c, sample, err := r.Locate(number)
		if err != nil {
			return nil, err
		}
		j.ops = append(j.ops, op{chunk: plan.ChunkID(c), sample: sample, dest: int32(i), fetch: int32(i)})
		if l.tables[plan.ChunkID(c)] == nil {
			l.tables[plan.ChunkID(c)] = r.table(c)
		}
	}
	for _, t := range l.tables {
		if err := pat.wait(t.done); err != nil {
			return nil, lookupError(j, err)
		}
	}
	l.plan()
	return l, nil
}

// plan cuts the samples into spans.
func (l *lookup) plan() {
	ops := l.j.ops
	order := make([]int, len(ops))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(ops[a].chunk, ops[b].chunk), cmp.Compare(ops[a].sample, ops[b].sample))
	})
	for n, i := range order {
		o := &ops[i]
		if n > 0 {
			if before := &ops[order[n-1]]; before.chunk == o.chunk && before.sample == o.sample {
				l.j.fetched[i] = l.j.fetched[order[n-1]]
				continue
			}
		}
		f, t := &fetch{done: make(chan struct{})}, l.tables[o.chunk]
		l.j.fetched[i] = f
		if t.err != nil {
			f.err = t.err
			close(f.done)
			continue
		}
		off, size := t.Range(int(o.sample))
		p := part{o.sample, off, off + size, f}
		if last := len(l.spans) - 1; last >= 0 && l.spans[last].takes(o.chunk, &p) {
			l.spans[last].end = p.end
			l.spans[last].samples = append(l.spans[last].samples, p)
		} else {
			l.spans = append(l.spans, span{t, uint32(o.chunk), p.off, p.end, []part{p}})
		}
	}
	for i := range l.spans {
		l.stage += int64(l.spans[i].end - l.spans[i].off)
	}
}

// takes says whether a sample is to be read with the span.
func (s *span) takes(chunk plan.ChunkID, p *part) bool {
	return s.chunk == uint32(chunk) && p.off <= s.end+spanGap && s.end-s.off < spanSize
}

// read asks for all spans at once; stage has room for them. done is called when the last has come.
func (l *lookup) read(stage []byte, done func()) {
	left := atomic.Int64{}
	left.Store(int64(len(l.spans)))
	if len(l.spans) == 0 {
		done()
		return
	}
	for i := range l.spans {
		s := &l.spans[i]
		n := s.end - s.off
		dst := stage[:n:n]
		stage = stage[n:]
		landed := func(data []byte, err error) {
			l.land(s, data, err)
			if left.Add(-1) == 0 {
				done()
			}
		}
		if n == 0 {
			landed(dst, nil)
			continue
		}
		l.reader.queue.Submit(&store.Request{Chunk: s.chunk, Off: int64(s.off), Dst: dst, Due: -1, Done: landed})
	}
}

// land gives each sample of a span what came for it. What is wrong is read once more, by itself.
func (l *lookup) land(s *span, data []byte, err error) {
	for i := range s.samples {
		p := &s.samples[i]
		f, failed := p.fetch, err
		if err == nil {
			f.prefix, f.body, f.raw, failed = s.table.Sample(int(p.sample), data[p.off-s.off:p.end-s.off])
		}
		switch {
		case failed == nil:
			close(f.done)
		case fault.KindOf(failed) == fault.Corrupt:
			l.reader.fetchRange(s.table, s.chunk, p.sample, f, p.off, make([]byte, p.end-p.off), true)
		default:
			f.err = locate(failed, l.reader.index.Entries[s.chunk])
			close(f.done)
		}
	}
}

// assembler puts the samples together.
func (l *lookup) assembler(pat *patience) *assembler {
	return &assembler{reader: l.reader, rec: l.rec, sc: newScratch(l.rec), pat: pat}
}
