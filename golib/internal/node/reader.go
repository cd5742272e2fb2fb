package node

import (
	"fmt"
	"sync"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/plan"
	"github.com/redox-loader/redox/golib/internal/store"
)

// defaultReaders is how many reads are in flight at once: enough to saturate local disks with chunks of some MiB.
const defaultReaders = 4

// tableMemory bounds the sample tables kept for single reads.
const tableMemory = 8 << 20

// Reader is an opened data set: its source with the queue before it, its schema, its index. It reads single samples
// by ranges, for looking and where a whole chunk is not at hand. Several engines may share one. Safe for concurrent
// use.
type Reader struct {
	source store.Source
	queue  *store.Queue
	schema chunk.Schema
	layout *chunk.Layout
	index  *chunk.Index

	mu         sync.Mutex
	refs       int
	tables     map[uint32]*table
	order      []uint32 // of tables, oldest first
	tableBytes int64
	kept       kept // of a Read that had too little room

	counts counters // of Read
}

// table is a chunk's sample table, or the wait for it.
type table struct {
	chunk.Table
	err   error
	bytes int64
	done  chan struct{}
}

// NewReader opens a data set that the source holds; it owns the source from then on. readers bounds the reads in
// flight, 0 is the default.
func NewReader(source store.Source, schema chunk.Schema, index *chunk.Index, readers int) *Reader {
	if readers <= 0 {
		readers = defaultReaders
	}
	return &Reader{
		source: source, queue: store.NewQueue(source, readers), schema: schema, layout: chunk.NewLayout(schema),
		index: index, refs: 1, tables: map[uint32]*table{},
	}
}

// Schema is the fields of the data set.
func (r *Reader) Schema() chunk.Schema { return r.schema }

// Index is the data set's chunk table.
func (r *Reader) Index() *chunk.Index { return r.index }

// where names a chunk for messages.
func (r *Reader) where(c plan.ChunkID) string {
	return fmt.Sprintf("chunk %d (%s)", c, r.source.Name(uint32(c)))
}

// Retain adds a user; each must Close.
func (r *Reader) Retain() *Reader {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refs <= 0 {
		panic("node: reader used after close")
	}
	r.refs++
	return r
}

// Close removes a user; the last one closes the source.
func (r *Reader) Close() {
	r.mu.Lock()
	r.refs--
	last := r.refs == 0
	r.mu.Unlock()
	if last {
		r.queue.Close()
	}
}

// Locate finds a stored number.
func (r *Reader) Locate(number int64) (chunkID, sample uint32, err error) {
	entries := r.index.Entries
	lo, hi := 0, len(entries)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if int64(entries[mid].First) <= number {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if number < 0 || lo == 0 || number >= int64(r.index.Samples()) {
		return 0, 0, fault.New(fault.Invalid, "sample %d: the data set has %d samples", number, r.index.Samples())
	}
	return uint32(lo - 1), uint32(number - int64(entries[lo-1].First)), nil
}

// Table is the sample table of a chunk: sources, keys, sizes. It may wait for storage.
func (r *Reader) Table(id uint32, p *patience) (*chunk.Table, error) {
	t := r.table(id)
	if err := p.wait(t.done); err != nil {
		return nil, err
	}
	if t.err != nil {
		return nil, t.err
	}
	return &t.Table, nil
}

// table returns a chunk's table, asking for it if need be.
func (r *Reader) table(id uint32) *table {
	r.mu.Lock()
	t := r.tables[id]
	if t != nil {
		r.mu.Unlock()
		return t
	}
	e := r.index.Entries[id]
	buf := make([]byte, chunk.HeaderSize+int(e.TableBytes))
	t = &table{done: make(chan struct{}), bytes: int64(len(buf))}
	r.tables[id] = t
	r.order = append(r.order, id)
	r.tableBytes += t.bytes
	for r.tableBytes > tableMemory && len(r.order) > 1 {
		r.forget(r.order[0])
	}
	r.mu.Unlock()
	r.readTable(t, id, buf, false)
	return t
}

// readTable asks for a table; a wrong checksum is given a second chance.
func (r *Reader) readTable(t *table, id uint32, buf []byte, again bool) {
	e := r.index.Entries[id]
	r.queue.Submit(&store.Request{Chunk: id, Dst: buf, Due: -1, Done: func(data []byte, err error) {
		if err == nil {
			if t.Table, err = chunk.ParseTable(data, e, r.layout); err != nil && !again {
				r.readTable(t, id, buf, true)
				return
			}
		}
		if err != nil {
			t.err = locate(err, e)
			r.mu.Lock()
			if r.tables[id] == t {
				r.forget(id) // the next one shall try again
			}
			r.mu.Unlock()
		}
		close(t.done)
	}})
}

// forget drops a table; who has it keeps it. mu is held.
func (r *Reader) forget(id uint32) {
	r.tableBytes -= r.tables[id].bytes
	delete(r.tables, id)
	for i, x := range r.order {
		if x == id {
			r.order = append(r.order[:i], r.order[i+1:]...)
			return
		}
	}
}
