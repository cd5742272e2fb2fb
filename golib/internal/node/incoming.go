package node

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/redox-loader/redox/golib/internal/exchange"
	"github.com/redox-loader/redox/golib/internal/plan"
)

// incoming is what other nodes send to a pass. A cursor of its own walks ahead of the jobs and tells the lane what is
// expected, as far as there is credit; the jobs take it in the same order and make room.
type incoming struct {
	pass     *pass
	lane     exchange.Lane
	credit   uint64
	expected atomic.Uint64 // ordinals that the lane was told

	mu      sync.Mutex
	jobs    []*job // with incoming samples that are not all taken, in order
	low     uint64 // nobody needs the ordinals below
	waiting bool
	changed chan struct{}

	telling sync.Mutex    // held while the lane is told how far jobs are
	told    atomic.Uint64 // the lane has given up the ordinals below
}

func newIncoming(p *pass, credit int) *incoming {
	return &incoming{pass: p, credit: uint64(credit), changed: make(chan struct{})}
}

// expectAhead walks through the plan and tells the lane what will come.
func (in *incoming) expectAhead(deal *plan.Deal) {
	p := in.pass
	rank := p.run.cfg.Rank
	var mine []bool
	for {
		b, ok := deal.Next()
		if !ok {
			return
		}
		mine = resize(mine, len(b.Picks))
		clear(mine)
		for _, it := range b.Ranks[rank] {
			mine[it.Pos] = p.comes(b, it)
		}
		for at, is := range mine {
			if !is {
				continue
			}
			if !in.awaitCredit() {
				return
			}
			in.lane.Expect(b.First+int64(at), int(p.owns.homes[b.Picks[at].Partition]))
			in.expected.Add(1)
		}
		in.tell()
		in.wake()
	}
}

// comes says whether an item of one of this node's ranks comes from another node. What pads is read from storage.
func (p *pass) comes(b *plan.GlobalBatch, it plan.Item) bool {
	return !it.Pad && p.owns.homes[b.Picks[it.Pos].Partition] != p.owns.node
}

// awaitCredit waits until one more sample may be expected; false if the pass ends.
func (in *incoming) awaitCredit() bool {
	room := func() bool { return in.expected.Load() < in.told.Load()+in.credit }
	for !room() {
		in.tell()
		in.wake() // who waits for something to be expected may have it now
		changed := in.watch()
		if room() {
			return true
		}
		select {
		case <-changed:
		case <-in.pass.ctx.Done():
			return false
		}
	}
	return true
}

// watch returns what is closed at the next change. Who waits looks again after calling it.
func (in *incoming) watch() <-chan struct{} {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.waiting = true
	return in.changed
}

// wake tells all who wait that something has changed. The lane calls it.
func (in *incoming) wake() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.waiting {
		close(in.changed)
		in.changed = make(chan struct{})
		in.waiting = false
	}
}

// look says what became of a sample; known: the lane was told of it.
func (in *incoming) look(ordinal uint64) (s exchange.Sample, status exchange.Status, known bool) {
	if ordinal >= in.expected.Load() {
		return s, exchange.Coming, false
	}
	s, status = in.lane.Look(ordinal)
	return s, status, true
}

// add makes a job known, in order. run.mu is held.
func (in *incoming) add(j *job) {
	if j.coming == 0 {
		return
	}
	in.mu.Lock()
	in.jobs = append(in.jobs, j)
	in.mu.Unlock()
}

// took notes that a job needs its first n incoming samples no more.
func (in *incoming) took(j *job, n int32) {
	in.mu.Lock()
	if n <= j.took {
		in.mu.Unlock()
		return
	}
	j.took = n
	for len(in.jobs) > 0 && in.jobs[0].took == in.jobs[0].coming {
		in.low = in.jobs[0].ordinal + uint64(in.jobs[0].coming)
		in.jobs = in.jobs[1:]
	}
	if len(in.jobs) > 0 {
		in.low = in.jobs[0].ordinal + uint64(in.jobs[0].took)
	}
	low := in.low
	in.mu.Unlock()
	// Not for every sample, as the lane tells its peers; but at once if that is what stands still.
	if low >= in.told.Load()+max(1, in.credit/16) || n == j.coming {
		in.tell()
	}
}

// tell gives the lane's memory back as far as jobs are.
func (in *incoming) tell() {
	in.telling.Lock()
	in.mu.Lock()
	low := in.low
	in.mu.Unlock()
	// A job may have read from storage what the lane has not been told yet.
	low = min(low, in.expected.Load())
	moved := low > in.told.Load()
	if moved {
		in.lane.Done(low)
		in.told.Store(low)
	}
	in.telling.Unlock()
	if moved {
		in.wake()
	}
}

// whose describes an incoming sample for messages.
func (p *pass) whose(o *op) string {
	return fmt.Sprintf("a sample of node %d's partition %d, chunk %d", o.owner, o.partition, o.chunk)
}
