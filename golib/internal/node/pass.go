package node

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/redox-loader/redox/golib/internal/plan"
	"github.com/redox-loader/redox/golib/internal/resident"
)

// pass is one epoch of a run. One goroutine reads ahead (readahead.go); workers assemble jobs in order into slots
// (work); without slots, or when all are lent, the caller assembles by itself.
//
// Why it cannot lock up: chunks are taken in the order of first need, and samples are consumed in that order. So
// whatever the oldest unfinished job waits for is the next chunk to be taken, and what is pinned then is at most the
// window, for which memory is reserved.
type pass struct {
	run     *Run
	epoch   uint64
	plan    *plan.Epoch
	from    int64
	batches int64 // of this rank, from `from` on
	owns    ownership
	stored  storedWalk // of the deal, in stored order
	ctx     context.Context
	cancel  context.CancelFunc
	routine sync.WaitGroup
	reading context.Context // ends with ctx, or when the rest of the pass was sent (linger)
	unread  context.CancelFunc
	reader  sync.WaitGroup
	after   atomic.Pointer[nextEpoch] // once it is dealt
	in      *incoming                 // nil without exchange, and push with it
	push    *pusher

	// held has, by chunk, what the pass holds: taken and not used up.
	held []atomic.Pointer[hold]

	// Below: guarded by run.mu.
	deal     *plan.Deal
	ordinals uint64 // incoming samples of the jobs made so far
	queue    []*job // made and not yet delivered, in order
	step     uint64
	ended    bool            // the deal is exhausted
	need     int64           // chunks first needed before this position may be read without limit
	first    bool            // no job is assembled yet
	ahead    []plan.Open     // taken chunks that are not needed yet, in the order of need
	draining bool            // the reader ends with the pass, without a look at the next
	openings *openings       // what the reader takes next
	taking   context.Context // of the chunk that the reader takes now
	shedding func()          // ends that: chunks were given back that are needed before it
	work     sync.Cond       // workers and the reader wait here
	arrived  chan struct{}   // closed and renewed when a chunk is taken, if somebody waits
	awaited  int
	err      error // of the reader
}

// ownership says which chunks this process reads whole: those whose home is its node. In stored order, where a chunk
// may be spread over the ranks, those that it needs anything of.
type ownership struct {
	homes []uint16 // of partitions; nil in stored order
	node  uint16
	// stored order: this node's places in a global batch
	batch, begin, end int64
	from              int64
}

func newOwnership(r *Run, epoch uint64, from int64) ownership {
	o := ownership{node: r.cfg.node(), from: from}
	if r.cfg.Plan.Shuffled() {
		o.homes = r.cfg.Plan.Homes(r.cfg.World.Nodes, epoch)
		return o
	}
	b := int64(r.cfg.World.BatchSize)
	for i, n := range r.cfg.World.Nodes {
		if uint16(i) == o.node {
			o.begin, o.end = o.batch, o.batch+int64(n)*b
		}
		o.batch += int64(n) * b
	}
	return o
}

func newPass(r *Run, epoch uint64, e *plan.Epoch, deal *plan.Deal, from int64) *pass {
	p := &pass{
		run: r, epoch: epoch, plan: e, from: from, batches: deal.RankBatches(r.cfg.Rank), owns: newOwnership(r, epoch, from),
		deal: deal, first: true,
		openings: &openings{},
		held:     make([]atomic.Pointer[hold], len(r.eng.index.Entries)), need: from, arrived: make(chan struct{}),
		step: uint64(from / (int64(r.cfg.World.Ranks()) * int64(r.cfg.World.BatchSize))),
	}
	if !r.cfg.Plan.Shuffled() {
		p.stored = storedWalk{owns: &p.owns, opens: e.Opens(from)}
	}
	p.work.L = &r.mu
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.reading, p.unread = context.WithCancel(context.Background())
	return p
}

// start begins to read and to assemble. ahead is what was read before the epoch was asked for, or nil.
func (p *pass) start(ahead *early) {
	p.run.user.Advance(p.from)
	p.run.user.Rekey()
	p.run.mu.Lock()
	p.head() // makes the first job: its chunks are what the reader must bring first
	p.run.mu.Unlock()
	p.reader.Go(func() { p.readAhead(ahead) })
	p.routine.Go(p.lookBeyond)
	p.exchange()
	for range p.run.cfg.workers() {
		p.routine.Go(p.assembleAhead)
	}
}

// end stops everything and drops what is held. No call of the run is under way. A pass that was delivered whole goes on
// sending for a while what other nodes still want of it.
func (p *pass) end() {
	r := p.run
	p.cancel()
	r.mu.Lock()
	lingers := p.ended && len(p.queue) == 0 && !r.closed && p.push != nil && !p.push.finished()
	p.draining = lingers && r.early == nil
	draining := p.draining
	p.work.Broadcast()
	r.mu.Unlock()
	p.routine.Wait()
	r.mu.Lock()
	for _, j := range p.queue {
		if j.slot != nil {
			j.slot.region.Release()
			r.slots++
		}
		j.release()
	}
	p.queue = nil
	r.mu.Unlock()
	if !draining {
		p.unread() // what it reads for the next epoch is the next pass's
		r.mu.Lock()
		p.work.Broadcast()
		r.mu.Unlock()
		p.reader.Wait()
	}
	if lingers {
		r.linger(p)
	} else {
		p.shut()
	}
}

// shut ends what a pass has to do with storage and other nodes.
func (p *pass) shut() {
	r := p.run
	p.unread()
	r.mu.Lock()
	p.work.Broadcast()
	r.mu.Unlock()
	p.reader.Wait()
	if p.push != nil {
		p.push.cancel()
		p.push.routine.Wait()
		p.in.lane.Close()
	}
	for c := range p.held {
		if h := p.held[c].Swap(nil); h != nil && h.end() {
			p.drop(plan.ChunkID(c), h)
		}
	}
}

// lookBeyond deals the next epoch, so that chunks which are used up get their next use.
func (p *pass) lookBeyond() {
	if p.run.cfg.Once {
		return
	}
	after := &nextEpoch{plan: p.run.epoch(p.epoch + 1)}
	if p.owns.homes != nil {
		after.homes = p.run.cfg.Plan.Homes(p.run.cfg.World.Nodes, p.epoch+1)
	}
	p.after.Store(after)
	p.run.user.Rekey()
}

// nextUse is when a chunk that is not held is needed: a position of this epoch, or one of the next, which counts on
// from this one's end. That is the run's timeline for the resident set; it begins anew with each pass (Rekey). An
// estimate, by the chunk's place in the queue of its partition.
func (p *pass) nextUse(c plan.ChunkID) int64 {
	size := p.run.cfg.Plan.Size()
	if now := p.run.user.Now(); now < size {
		if at := p.plan.NextUse(c); at >= now && (p.owns.homes == nil || p.owns.homes[p.plan.Partition(c)] == p.owns.node) {
			return at
		}
	}
	return p.useAgain(c)
}

// nextEpoch is what a pass knows of the epoch after it.
type nextEpoch struct {
	plan  *plan.Epoch
	homes []uint16 // of partitions; nil in stored order
}

// useAgain is when a chunk that was just used up is needed again: in the next epoch, if at all and if it is at home here
// then. (A sticky plan keeps it at home.)
func (p *pass) useAgain(c plan.ChunkID) int64 {
	if next := p.after.Load(); next != nil {
		if at := next.plan.NextUse(c); at >= 0 && (next.homes == nil || next.homes[next.plan.Partition(c)] == p.owns.node) {
			return p.run.cfg.Plan.Size() + at
		}
	}
	return resident.Never
}

// reads says whether this process reads the chunk of an opening whole.
func (o *ownership) reads(open plan.Open) bool {
	if o.homes != nil {
		return o.homes[open.Partition] == o.node
	}
	// Stored order: do its positions meet this node's places of any global batch?
	first := max(0, open.Position-o.from)
	last := first + int64(open.Left) - 1
	return last-first >= o.batch-(o.end-o.begin) || meets(first%o.batch, first%o.batch+last-first, o.begin, o.end, o.batch)
}

// storedWalk follows the picks of a stored order and tells whether this process reads their chunks.
type storedWalk struct {
	owns  *ownership
	opens *plan.Opens
	chunk plan.ChunkID
	known bool
	reads bool
}

func (w *storedWalk) owned(c plan.ChunkID) bool {
	for !w.known || w.chunk != c {
		open, ok := w.opens.Next()
		if !ok {
			return false
		}
		w.chunk, w.known, w.reads = open.Chunk, true, w.owns.reads(open)
	}
	return w.reads
}

// meets says whether [first, last], which may run over the end of a batch, meets [begin, end) of it or of the next.
func meets(first, last, begin, end, batch int64) bool {
	return first < end && last >= begin || last >= batch+begin
}
