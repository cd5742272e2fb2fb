package node

import (
	"container/heap"
	"fmt"
	"math"
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
	full := r.demand(&cfg, rec, cfg.window(), r.credit(&cfg, r.wantedCredit(&cfg))).total() + r.aheadBytes(&cfg, rec)
	cfg.Prefetch = min(cfg.Prefetch, 1)
	return r.demand(&cfg, rec, cfg.window(), r.credit(&cfg, leastCredit)).total(), full, nil
}

// aheadBytes is the memory for reading ahead freely: a few chunks, and where needed those that are opened inside one
// batch. Where sizes vary, all of a batch must be measured before the first of it is used up and frees a chunk; what there
// is no room for is read twice, sample by sample.
func (r *Reader) aheadBytes(cfg *RunConfig, rec *record) int64 {
	ahead := aheadChunks * r.largest(cfg.Plan, 1)
	if rec.fixed && cfg.Prefetch > 0 {
		return ahead
	}
	open := cfg.window() + leastAhead
	return ahead + r.largest(cfg.Plan, open+cfg.opened()) - r.largest(cfg.Plan, open)
}

// ahead is how many chunks are read before the batch that needs them is begun. Where no batches are begun ahead, those of
// the next one are among them.
func (c *RunConfig) ahead() int {
	if c.Prefetch > 0 {
		return aheadChunks
	}
	return aheadChunks + c.opened()
}

// opened is how many chunks the node may have to open in one batch, which differs from batch to batch: three standard
// deviations more than the mean, were it random.
func (c *RunConfig) opened() int {
	mean := float64(c.ranks()*c.World.BatchSize) * float64(c.Plan.Chunks()) / float64(max(1, c.Plan.Size()))
	return int(min(math.Ceil(mean+3*math.Sqrt(mean))+1, float64(c.Plan.Chunks())))
}

// demand counts what a run with so large a window must have.
func (r *Reader) demand(cfg *RunConfig, rec *record, window int, coming credit) demand {
	d := demand{chunks: r.largest(cfg.Plan, window+leastAhead)}
	if cfg.Prefetch > 0 {
		d.slots = times(int64(cfg.Prefetch+1), r.slotBytes(cfg, rec))
	}
	if !rec.whole && r.compressed() {
		d.scratch = times(int64(cfg.workers()+1), r.maxRaw())
	}
	d.scratch = min(most, d.scratch+r.singleBytes(cfg)+coming.bytes(cfg))
	return d
}

// singleBytes is the memory planned for samples of other nodes' chunks that are read one by one because nothing is
// exchanged; samples stay at home as far as possible, so they are few.
func (r *Reader) singleBytes(cfg *RunConfig) int64 {
	if len(cfg.World.Nodes) == 1 || !cfg.Plan.Shuffled() || cfg.exchanged() {
		return 0
	}
	return times(int64(cfg.workers()+1), times(int64(crossing(cfg)), r.meanRaw(cfg)))
}

// reserveRun reserves memory for a run. Assembling fewer batches ahead than wanted costs some speed and no promise, so
// where memory is short that gives way first; at least one is assembled ahead, if any is wanted. The ranks of this node
// that are still to come find their part.
func (e *Engine) reserveRun(cfg *RunConfig, rec *record) (demand, credit, error) {
	for {
		coming := e.affordable(cfg, rec)
		d := e.demand(cfg, rec, cfg.window(), coming)
		if (cfg.Prefetch <= 1 || d.total() <= e.Limit()/int64(cfg.ranks())) && e.reserve(d) {
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
	left, share := e.limit-e.reserved.total(), e.limit/int64(cfg.ranks())
	e.mu.Unlock()
	spare := min(left, share) - e.demand(cfg, rec, cfg.window(), least).total()
	sample := max(1, least.sample)
	n := max(spare/2/sample*4/5, min(int64(crossing(cfg)), spare/sample*4/5-leastCredit)) // a quarter as many are spare
	return e.credit(cfg, int(max(leastCredit, min(n, int64(e.wantedCredit(cfg))))))
}

// memoryError says what was asked for, what there is, and the largest window that would fit: in terms of the limit, which
// all ranks of this node share, and of the window, which all nodes share.
func (e *Engine) memoryError(cfg *RunConfig, rec *record, others int64) error {
	given, ranks, least := e.Limit(), int64(cfg.ranks()), e.credit(cfg, leastCredit)
	one := e.demand(cfg, rec, cfg.window(), least).total()
	needed := max(one+others, times(ranks, one))
	rest := given / ranks
	if ranks == 1 {
		rest -= others
	}
	rest -= e.demand(cfg, rec, 0, least).total() - e.largest(cfg.Plan, leastAhead)
	here := 0
	for i, room := range e.rooms(cfg.Plan) {
		if rest -= room; rest < 0 {
			break
		}
		here = max(0, i+1-leastAhead)
	}
	fits, owned := cfg.Plan.Window(), cfg.owned()
	for ; fits > 0 && owned.window(fits) > here; fits-- {
	}
	err := fault.New(fault.Memory, "memory_limit is %d bytes, but %d are needed for a window of %d chunks (the smallest memory_limit "+
		"for it); the largest window for this limit is %d", given, needed, cfg.Plan.Window(), fits)
	if nodes := len(cfg.World.Nodes); nodes > 1 {
		err.Message += fmt.Sprintf("; of the window this node, one of %d, holds %d chunks", nodes, cfg.window())
	}
	if ranks > 1 {
		err.Message += fmt.Sprintf("; the limit is for all %d ranks of the node", ranks)
	} else if others > 0 {
		err.Message += "; other loaders share it"
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
		v := min(value(uint32(c)), most)
		switch {
		case len(h) < n:
			heap.Push(&h, v)
			sum += v
		case n > 0 && v > h[0]:
			sum += v - h[0]
			h[0] = v
			heap.Fix(&h, 0)
		}
		sum = min(sum, most)
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
			fixed += alignColumn(times(b, int64(min(uint64(f.size), most))))
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
		fixed = min(most, fixed)
	}
	fixed += alignColumn(8 * b)
	if variable == 0 {
		return buffer.Pages(fixed)
	}
	mean := r.meanRaw(cfg)
	data := min(times(b, mean)+times(b, mean)/10+r.maxRaw(), times(b, r.maxRaw()))
	return min(most, buffer.Pages(fixed+data+int64(variable)*columnAlign))
}

// meanRaw is the mean size of the samples of a window, if that were the chunks with the largest samples.
func (r *Reader) meanRaw(cfg *RunConfig) int64 {
	window := min(cfg.window(), cfg.Plan.Chunks())
	return r.top(cfg.Plan, window, func(c uint32) int64 {
		e := &r.index.Entries[c]
		return int64(min(e.Raw/uint64(max(1, e.Samples)), most))
	}) / int64(max(1, window))
}

func alignColumn(n int64) int64 { return (n + columnAlign - 1) &^ (columnAlign - 1) }

func (r *Reader) maxRaw() int64 {
	largest := uint64(0)
	for i := range r.index.Entries {
		largest = max(largest, r.index.Entries[i].MaxRaw)
	}
	return int64(min(largest, most))
}

// most is the most memory that is counted: what a hostile index asks for beyond that is too much all the same, and sums
// of a few such numbers do not overflow.
const most = 1 << 56

// times multiplies sizes, up to most.
func times(a, b int64) int64 {
	if a > 0 && b > most/a {
		return most
	}
	return a * b
}

// compressed says whether any chunk holds less than its samples' raw bytes.
func (r *Reader) compressed() bool {
	return slices.ContainsFunc(r.index.Entries, func(e chunk.Entry) bool {
		return e.Stored-chunk.HeaderSize-uint64(e.TableBytes) < e.Raw
	})
}

// window is how many chunks this run may have open at once: those of its node's partitions.
func (c *RunConfig) window() int { return c.owned().window(c.Plan.Window()) }

// owned is how many of the first n partitions, in the order of the turns, a node has.
type owned []int

func (c *RunConfig) owned() owned {
	o := make(owned, 1, c.Plan.Partitions()+1)
	for i, owner := range plan.Owners(c.World.Nodes, c.Plan.Partitions()) {
		o = append(o, o[i])
		if owner == c.node() {
			o[i+1]++
		}
	}
	return o
}

// window is how many chunks the node may have open if the cluster's window is w.
func (o owned) window(w int) int {
	partitions := min(w, len(o)-1)
	own := o[partitions]
	if own == partitions {
		return w
	}
	return min(w, own*((w+partitions-1)/partitions))
}

// ranks is how many ranks this run's node has.
func (c *RunConfig) ranks() int { return c.World.Nodes[c.node()] }

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

// workers is how many goroutines assemble batches ahead: more than processors would only wait for each other. (Go may
// have more processors than the machine: see package capi.)
func (c *RunConfig) workers() int {
	return min(c.Prefetch, runtime.NumCPU(), runtime.GOMAXPROCS(0), maxWorkers)
}
