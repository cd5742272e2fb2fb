package node

import (
	"sync/atomic"
	"time"

	"github.com/redox-loader/redox/golib/internal/plan"
)

// job is one batch of this rank on its way.
type job struct {
	step       uint64
	first, end int64 // global positions of the whole global batch
	n          int   // samples of this rank
	padded     int
	ops        []op    // in the order of positions
	index      []int64 // stored numbers, by place in the batch

	fetched  []*fetch // samples read by themselves
	sizes    []uint64 // bytes of each wanted field of each sample; n x fields
	ndim     int
	measured bool
	bad      []bool // by place: corrupt, to be replaced
	bads     int
	consumed int // ops counted off their chunks
	sized    int // ops whose sizes are known
	written  int // ops whose samples are in their places
	// kept is those samples of a try that was broken off in the middle: their chunks, and what others sent, may be gone.
	kept []Column

	ordinal uint64       // of the first of its incoming samples
	coming  int32        // how many those are
	took    int32        // how many of them are not needed any more: the first ones
	looked  int          // ops that were looked at for what has to be read from storage ahead
	passed  atomic.Int64 // the position up to which its samples are used

	state state
	slot  *Slot
	err   error
	done  chan struct{} // closed when assembled, failed, or found to fit no slot

	waits       atomic.Pointer[waitFor] // what its assembly waits for, for messages
	lastStorage atomic.Int64            // end of its last wait for storage, Unix ns
	lastPeer    atomic.Int64            // and for another node
	longest     time.Duration           // of its waits for a chunk
}

// op is what happens at one position of the global batch that concerns this process.
type op struct {
	chunk  plan.ChunkID
	sample uint32
	dest   int32 // place in this rank's batch, or -1: the sample only counts as used
	fetch  int32 // index into fetched, or -1: not read by itself (yet)
	pos    int32 // place in the global batch
	in     int32 // place among the job's incoming samples, or -1

	partition uint16
	owner     uint16 // of an incoming sample
	own       bool   // of a chunk that this process reads whole
	out       bool   // the pusher sends it to another node and counts it off

	// Of an incoming sample:
	asked    bool // it was noted whether it was there when it was asked for
	came     bool // it was counted as sent by its owner
	replaced bool // it was counted as read from storage
	refused  bool // what its owner sent was no good
	unread   bool // storage does not have it
}

// state is how far a job is.
type state uint8

const (
	fresh    state = iota // nobody works on it
	taken                 // a worker or the caller assembles it
	finished              // in its slot, or failed
	homeless              // no slot has room for it
)

// waitFor is what a job waits for.
type waitFor struct {
	what  string
	chunk plan.ChunkID
	since time.Time
	peer  bool // another node, not storage
}

// head returns the next job to deliver, making it if need be; nil at the end of the epoch. run.mu is held.
func (p *pass) head() *job {
	if len(p.queue) == 0 {
		p.makeJob()
	}
	if len(p.queue) == 0 {
		return nil
	}
	return p.queue[0]
}

// makeJob appends the rank's next batch to the queue; false at the end. run.mu is held.
func (p *pass) makeJob() bool {
	r := p.run
	for !p.ended {
		b, ok := p.deal.Next()
		if !ok {
			p.ended = true
			break
		}
		j := r.newJob()
		j.step = p.step
		p.step++
		p.fill(j, b)
		p.queue = append(p.queue, j)
		if p.in != nil {
			p.in.add(j)
		}
		p.setNeed()
		if j.n > 0 {
			return true
		}
		// Under PadNone the last global batch may have nothing for this rank: its chunks still count as used.
		p.queue = p.queue[:len(p.queue)-1]
		p.skipEmpty(j)
	}
	return false
}

// skipEmpty counts off a job that delivers nothing.
func (p *pass) skipEmpty(j *job) {
	for i := range j.ops {
		if o := &j.ops[i]; o.own && !o.out {
			if h := p.held[o.chunk].Load(); h != nil {
				p.consume(o.chunk, h)
			}
		}
	}
}

// setNeed tells the reader up to where chunks are wanted now. run.mu is held.
func (p *pass) setNeed() {
	need := p.need
	if len(p.queue) > 0 {
		last := p.queue[len(p.queue)-1]
		if p.first {
			last = p.queue[0]
		}
		need = max(need, last.end)
	}
	if need != p.need {
		p.need = need
		p.run.user.Advance(need)
		p.work.Broadcast()
	}
}

// fill turns a global batch into a job: this rank's samples, and the samples of this process's chunks that others get.
func (p *pass) fill(j *job, b *plan.GlobalBatch) {
	r := p.run
	items := b.Ranks[r.cfg.Rank]
	real := len(b.Picks) - b.Padded
	j.first, j.end, j.n = b.First, b.First+int64(real), len(items)
	j.ops = resize(j.ops, len(b.Picks))
	j.index = resize(j.index, j.n)
	for i := range b.Picks {
		k := &b.Picks[i]
		own := i < real && p.ownsPick(k)
		j.ops[i] = op{chunk: k.Chunk, sample: k.Sample, dest: -1, fetch: -1, pos: int32(i), in: -1, partition: k.Partition, own: own}
	}
	mark := r.cfg.World.Pad == plan.PadMark
	for d, it := range items {
		o := &j.ops[it.Pos]
		o.dest = int32(d)
		j.index[d] = r.cfg.Plan.Number(o.chunk, o.sample)
		if it.Pad {
			j.padded++
			if mark {
				j.index[d] = -1 - j.index[d]
			}
		}
		if !o.own && p.in == nil {
			o.fetch = int32(len(j.fetched))
			j.fetched = append(j.fetched, nil)
		}
	}
	if p.in != nil {
		p.fillExchange(j, b)
	}
	kept := j.ops[:0]
	for i := range j.ops {
		if o := j.ops[i]; o.own || o.dest >= 0 {
			kept = append(kept, o)
		}
	}
	j.ops = kept
}

// fillExchange marks what comes from other nodes, with its ordinals, and what the pusher sends to them.
func (p *pass) fillExchange(j *job, b *plan.GlobalBatch) {
	for i := range len(b.Picks) - b.Padded {
		if o := &j.ops[i]; o.dest >= 0 && !o.own {
			o.in, o.owner = j.coming, p.owns.homes[o.partition]
			j.coming++
		}
	}
	for _, rank := range p.push.ranks {
		for _, it := range b.Ranks[rank] {
			if o := &j.ops[it.Pos]; o.own { // what pads is not
				o.out = true
			}
		}
	}
	j.ordinal = p.ordinals
	p.ordinals += uint64(j.coming)
	j.passed.Store(j.first)
}

// ownsPick says whether a sample comes from a chunk that this process reads whole.
func (p *pass) ownsPick(k *plan.Pick) bool {
	if p.owns.homes != nil {
		return p.owns.homes[k.Partition] == p.owns.node
	}
	return p.stored.owned(k.Chunk)
}

// newJob returns an empty job with the memory of a delivered one. The job itself is new: somebody may still ask an old
// one what it waits for. mu is held.
func (r *Run) newJob() *job {
	j := &job{done: make(chan struct{})}
	if n := len(r.spare); n > 0 {
		old := r.spare[n-1]
		r.spare = r.spare[:n-1]
		j.ops, j.index, j.fetched, j.sizes, j.bad = old.ops, old.index, old.fetched[:0], old.sizes, old.bad
	}
	return j
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
