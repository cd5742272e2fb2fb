package node

import (
	"container/heap"
	"runtime"
	"slices"

	"github.com/redox-loader/redox/golib/internal/buffer"
	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/plan"
)

// leastAhead is how many chunks beyond the window a run must have room for: one on its way while one is used up.
const leastAhead = 2

// columnAlign is the alignment of columns in a slot, for vector instructions.
const columnAlign = 64

// Needed is the smallest memory limit for a run of this configuration, and the least that lets it read and assemble
// ahead freely (what "auto" takes).
func (r *Reader) Needed(cfg RunConfig) (least, good int64, err error) {
	rec, err := newRecord(r.schema, r.layout, cfg.Fields)
	if err != nil {
		return 0, 0, err
	}
	full := r.demand(&cfg, rec, cfg.window(), r.credit(&cfg, r.wantedCredit(&cfg))).total() + aheadChunks*r.largest(cfg.Plan, 1)
	cfg.Prefetch = min(cfg.Prefetch, 1)
	return r.demand(&cfg, rec, cfg.window(), r.credit(&cfg, leastCredit)).total(), full, nil
}

// demand counts what a run with so large a window must have.
func (r *Reader) demand(cfg *RunConfig, rec *record, window int, coming credit) demand {
	d := demand{chunks: r.largest(cfg.Plan, window+leastAhead)}
	if cfg.Prefetch > 0 {
		d.slots = int64(cfg.Prefetch+1) * r.slotBytes(cfg, rec)
	}
	if !rec.whole && r.compressed() {
		d.scratch = int64(cfg.workers()+1) * int64(r.maxRaw())
	}
	d.scratch += r.singleBytes(cfg) + coming.bytes(cfg)
	return d
}

// singleBytes is the memory planned for samples of other nodes' chunks that are read one by one because nothing is
// exchanged; samples stay at home as far as possible, so they are few.
func (r *Reader) singleBytes(cfg *RunConfig) int64 {
	if len(cfg.World.Nodes) == 1 || !cfg.Plan.Shuffled() || cfg.exchanged() {
		return 0
	}
	return int64(cfg.workers()+1) * int64(crossing(cfg)) * r.meanRaw(cfg)
}

// reserveRun reserves memory for a run. Assembling fewer batches ahead than wanted costs some speed and no promise, so
// where memory is short that gives way first; at least one is assembled ahead, if any is wanted.
func (e *Engine) reserveRun(cfg *RunConfig, rec *record) (demand, credit, error) {
	for {
		coming := e.affordable(cfg, rec)
		d := e.demand(cfg, rec, cfg.window(), coming)
		if e.reserve(d) {
			return d, coming, nil
		}
		if cfg.Prefetch <= 1 {
			e.mu.Lock()
			others := e.reserved.total()
			e.mu.Unlock()
			return d, coming, e.memoryError(cfg, rec, others)
		}
		cfg.Prefetch--
	}
}

// affordable is how much of the limit may go to samples of other nodes: half of what is spare in the share of one of the
// node's ranks; the other half is for reading ahead. What one batch needs comes before that.
func (e *Engine) affordable(cfg *RunConfig, rec *record) credit {
	least := e.credit(cfg, leastCredit)
	if least.coming == 0 {
		return least
	}
	e.mu.Lock()
	left, share := e.limit-e.reserved.total(), e.limit/int64(cfg.World.Nodes[cfg.node()])
	e.mu.Unlock()
	spare := min(left, share) - e.demand(cfg, rec, cfg.window(), least).total()
	sample := max(1, least.sample)
	n := max(spare/2/sample*4/5, min(int64(crossing(cfg)), spare/sample*4/5-leastCredit)) // a quarter as many are spare
	return e.credit(cfg, int(max(leastCredit, min(n, int64(e.wantedCredit(cfg))))))
}

// memoryError says what was asked for, what there is, and the largest window that would fit.
func (e *Engine) memoryError(cfg *RunConfig, rec *record, others int64) error {
	window, least := cfg.window(), e.credit(cfg, leastCredit)
	needed := e.demand(cfg, rec, window, least).total() + others
	given := e.limit
	rest := given - others - e.demand(cfg, rec, 0, least).total() + e.largest(cfg.Plan, leastAhead)
	fits := 0
	for i, room := range e.rooms(cfg.Plan) {
		if rest -= room; rest < 0 {
			break
		}
		fits = max(0, i+1-leastAhead)
	}
	fits = min(fits, window)
	err := fault.New(fault.Memory, "memory_limit is %d bytes, but %d are needed for a window of %d chunks "+
		"(the smallest memory_limit for it); the largest window for this limit is %d", given, needed, window, fits)
	if others > 0 {
		err.Message += " beside the other loaders that share it"
	}
	err.Needed, err.Given, err.Window = needed, given, int64(fits)
	return err
}

// rooms is the memory of each chunk that takes part, the largest first.
func (r *Reader) rooms(p *plan.Plan) []int64 {
	var rooms []int64
	for c := range r.index.Entries {
		if p.Count(plan.ChunkID(c)) > 0 {
			rooms = append(rooms, buffer.Pages(r.source.Room(uint32(c))))
		}
	}
	slices.SortFunc(rooms, func(a, b int64) int { return int(min(1, max(-1, b-a))) })
	return rooms
}

// largest is the memory of the n largest chunks that take part.
func (r *Reader) largest(p *plan.Plan, n int) int64 {
	return r.top(p, n, func(c uint32) int64 { return buffer.Pages(r.source.Room(c)) })
}

// top sums the n largest values of the chunks that take part, in one pass and O(n) memory.
func (r *Reader) top(p *plan.Plan, n int, value func(c uint32) int64) int64 {
	var h smallest
	sum := int64(0)
	for c := range r.index.Entries {
		if p.Count(plan.ChunkID(c)) == 0 {
			continue
		}
		v := value(uint32(c))
		switch {
		case len(h) < n:
			heap.Push(&h, v)
			sum += v
		case n > 0 && v > h[0]:
			sum += v - h[0]
			h[0] = v
			heap.Fix(&h, 0)
		}
	}
	return sum
}

// smallest is a heap with the smallest value on top.
type smallest []int64

func (h smallest) Len() int           { return len(h) }
func (h smallest) Less(i, j int) bool { return h[i] < h[j] }
func (h smallest) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *smallest) Push(x any)        { *h = append(*h, x.(int64)) }
func (h *smallest) Pop() any {
	old := *h
	v := old[len(old)-1]
	*h = old[:len(old)-1]
	return v
}

// slotBytes is the memory planned for one batch. Exact where sizes are fixed; else the samples of a batch come from
// the whole window, so it is taken to be no larger than if the window were the chunks with the largest samples, a
// tenth and the largest sample more. A batch beyond that is delivered into the caller's memory instead.
func (r *Reader) slotBytes(cfg *RunConfig, rec *record) int64 {
	b := int64(cfg.World.BatchSize)
	fixed, variable := int64(0), 0
	for _, f := range rec.fields {
		switch {
		case f.fixed:
			fixed += alignColumn(b * int64(f.size))
		default:
			variable++
			fixed += alignColumn(8 * (b + 1))
		}
		if f.shaped {
			fixed += alignColumn(8 * b * 8)
		}
		if f.nullable {
			fixed += alignColumn(b)
		}
	}
	fixed += alignColumn(8 * b)
	if variable == 0 {
		return buffer.Pages(fixed)
	}
	mean := r.meanRaw(cfg)
	data := min(b*mean+b*mean/10+int64(r.maxRaw()), b*int64(r.maxRaw()))
	return buffer.Pages(fixed + data + int64(variable)*columnAlign)
}

// meanRaw is the mean size of the samples of a window, if that were the chunks with the largest samples.
func (r *Reader) meanRaw(cfg *RunConfig) int64 {
	window := min(cfg.window(), cfg.Plan.Chunks())
	return r.top(cfg.Plan, window, func(c uint32) int64 {
		e := &r.index.Entries[c]
		return int64(e.Raw / uint64(max(1, e.Samples)))
	}) / int64(max(1, window))
}

func alignColumn(n int64) int64 { return (n + columnAlign - 1) &^ (columnAlign - 1) }

func (r *Reader) maxRaw() (largest uint64) {
	for i := range r.index.Entries {
		largest = max(largest, r.index.Entries[i].MaxRaw)
	}
	return largest
}

// compressed says whether any chunk holds less than its samples' raw bytes.
func (r *Reader) compressed() bool {
	return slices.ContainsFunc(r.index.Entries, func(e chunk.Entry) bool {
		return e.Stored-chunk.HeaderSize-uint64(e.TableBytes) < e.Raw
	})
}

// window is how many chunks this run may have open at once: those of its node's partitions.
func (c *RunConfig) window() int {
	p := c.Plan
	own, homes := 0, p.Homes(c.World.Nodes, 0)
	for _, home := range homes {
		if home == c.node() {
			own++
		}
	}
	if own == len(homes) {
		return p.Window()
	}
	return min(p.Window(), own*((p.Window()+len(homes)-1)/len(homes)))
}

// node is the node of this run's rank.
func (c *RunConfig) node() uint16 {
	rank := c.Rank
	for i, n := range c.World.Nodes {
		if rank < n {
			return uint16(i)
		}
		rank -= n
	}
	return 0
}

// workers is how many goroutines assemble batches ahead: more than processors would only wait for each other.
func (c *RunConfig) workers() int { return min(c.Prefetch, runtime.GOMAXPROCS(0), maxWorkers) }
