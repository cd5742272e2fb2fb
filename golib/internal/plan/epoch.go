package plan

import (
	"slices"
	"sort"

	"github.com/redox-loader/redox/golib/internal/perm"
)

// Epoch is one epoch of a plan with its chunks dealt to the partitions. It is immutable; all methods may be called
// concurrently, and every Walk, Opens and Deal made from it is independent. Memory: 14 bytes a chunk.
type Epoch struct {
	plan      *Plan
	number    uint64
	parts     []part    // in the order π of their turns
	queue     []ChunkID // the parts' queues, one after the other
	turn      []uint16  // of each chunk: the turn of its partition
	before    []int64   // of each chunk: samples ahead of it in its queue; -1: not opened in this epoch
	segments  []segment // ascending; the last one begins at the end
	orderSeed uint64    // of the orders inside the chunks
}

// part is what one partition has to do in an epoch. It takes part in the rounds [start, start + samples).
type part struct {
	partition uint16
	start     int64 // the round in which its first virtual chunk opens
	samples   int64
	queue     []ChunkID
}

// segment is a run of rounds in which the same partitions take part, so that rounds and positions are proportional.
type segment struct {
	round    int64 // its first
	position int64 // of the first sample of that round
	active   int   // partitions that take part, samples a round; 0 between the ends of the early and the starts of the late
}

// Epoch deals the chunks of an epoch. It costs about 0.1 µs a chunk.
func (p *Plan) Epoch(e uint64) *Epoch {
	ep := &Epoch{
		plan:      p,
		number:    e,
		parts:     make([]part, p.partitions),
		turn:      make([]uint16, len(p.counts)),
		before:    make([]int64, len(p.counts)),
		orderSeed: perm.Seed("plan/order", p.seed, e),
	}
	for j, partition := range p.turns(e) {
		ep.parts[j] = part{partition: partition, start: p.ramp(j)}
	}
	ep.fillQueues(p.deal(e, ep.turn))
	ep.cutSegments()
	return ep
}

// turns returns π: the order in which the partitions have their turns in every round of an epoch.
func (p *Plan) turns(e uint64) []uint16 {
	turns := make([]uint16, p.partitions)
	for i := range turns {
		turns[i] = uint16(i)
	}
	r := perm.New(p.dealSeed("turns", e))
	perm.Shuffle(&r, turns)
	return turns
}

// dealSeed is the seed of what is dealt anew in each epoch, or once for all epochs of a sticky plan.
func (p *Plan) dealSeed(domain string, e uint64) uint64 {
	if p.sticky {
		return perm.Seed("plan/sticky/"+domain, p.seed)
	}
	return perm.Seed("plan/"+domain, p.seed, e)
}

// deal shuffles the chunks and gives each, in that order, to the partition with the fewest samples so far; of several,
// to the one whose turn comes first. It notes each chunk's turn and returns the shuffled chunks. So every partition has
// a chunk (there are at least as many chunks as partitions), and their samples differ by less than the largest chunk.
func (p *Plan) deal(e uint64, turn []uint16) []ChunkID {
	chunks := make([]ChunkID, 0, p.chunks)
	for c, n := range p.counts {
		if n > 0 {
			chunks = append(chunks, ChunkID(c))
		}
	}
	if !p.shuffle {
		return chunks
	}
	r := perm.New(p.dealSeed("chunks", e))
	perm.Shuffle(&r, chunks)
	loads := make(turnHeap[struct{}], p.partitions)
	for j := range loads {
		loads[j].turn = uint16(j) // nothing dealt yet: a heap
	}
	for _, c := range chunks {
		turn[c] = loads[0].turn
		loads[0].key += int64(p.counts[c])
		loads.sink(0)
	}
	return chunks
}

// fillQueues makes the partitions' queues out of the dealt chunks, keeping their order; in a sticky plan each queue is
// then shuffled anew for the epoch.
func (e *Epoch) fillQueues(chunks []ChunkID) {
	sizes := make([]int, len(e.parts))
	for _, c := range chunks {
		sizes[e.turn[c]]++
	}
	e.queue = make([]ChunkID, len(chunks))
	rest := e.queue
	for j := range e.parts {
		e.parts[j].queue, rest = rest[:0:sizes[j]], rest[sizes[j]:]
	}
	for _, c := range chunks {
		q := &e.parts[e.turn[c]]
		q.queue = append(q.queue, c)
	}
	for c := range e.before {
		e.before[c] = -1
	}
	for j := range e.parts {
		q := &e.parts[j]
		if e.plan.sticky {
			r := perm.New(perm.Seed("plan/queue", e.plan.seed, e.number, uint64(q.partition)))
			perm.Shuffle(&r, q.queue)
		}
		for _, c := range q.queue {
			e.before[c] = q.samples
			q.samples += int64(e.plan.counts[c])
		}
	}
}

// cutSegments finds the rounds in which partitions begin and end, and the positions of those rounds.
func (e *Epoch) cutSegments() {
	type change struct {
		round int64
		delta int
	}
	changes := make([]change, 0, 2*len(e.parts))
	for _, q := range e.parts {
		changes = append(changes, change{q.start, 1}, change{q.start + q.samples, -1})
	}
	slices.SortFunc(changes, func(a, b change) int {
		switch {
		case a.round < b.round:
			return -1
		case a.round > b.round:
			return 1
		}
		return 0
	})
	var s segment // of what comes before the change
	for i, c := range changes {
		s.position += (c.round - s.round) * int64(s.active)
		s.round = c.round
		s.active += c.delta
		if i == len(changes)-1 || changes[i+1].round > c.round {
			e.segments = append(e.segments, s)
		}
	}
}

// segmentOf returns the index of the segment that a position lies in; positions at the end are in the last one.
func (e *Epoch) segmentOf(position int64) int {
	return sort.Search(len(e.segments), func(i int) bool { return e.segments[i].position > position }) - 1
}

// Partition returns the partition of a chunk that is opened in this epoch.
func (e *Epoch) Partition(c ChunkID) uint16 { return e.parts[e.turn[c]].partition }

// NextUse estimates, in constant time, the position at which a chunk is first needed in this epoch; -1 if it is not.
// It is for choosing what to keep in memory for the epoch, where Opens would have to be run to its end. A later chunk of
// the same partition never has an earlier estimate.
func (e *Epoch) NextUse(c ChunkID) int64 {
	ahead := e.before[c]
	if ahead < 0 {
		return -1
	}
	p := e.plan
	turn := int(e.turn[c])
	q := &e.parts[turn]
	// A chunk is opened when those ahead of it are used up, but for what is left in the other virtual chunks: on
	// average half a chunk each. The partition's first chunks are opened by the ramp.
	mean := p.size / int64(p.chunks)
	others := int64(p.slots(turn) - 1)
	layer := min(ahead/mean, others)
	step := max(ahead-others*mean/2, p.ramp(turn+int(layer)*p.partitions)-q.start)
	return min(e.roundPosition(q.start+step), p.size-1)
}

// roundPosition returns the position at which a round begins.
func (e *Epoch) roundPosition(round int64) int64 {
	i := sort.Search(len(e.segments), func(i int) bool { return e.segments[i].round > round }) - 1
	s := e.segments[i]
	return s.position + (round-s.round)*int64(s.active)
}

// takesPart says whether a part has a sample in each round of a segment.
func (q *part) takesPart(s segment) bool {
	return q.start <= s.round && s.round < q.start+q.samples
}
