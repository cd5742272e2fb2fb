package node

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// How long a sample is waited for beyond the moment it is needed, before storage is asked for it.
const (
	firstHedge = 100 * time.Millisecond // while nothing is known, and at most: a read from storage is quicker then
	leastHedge = 20 * time.Millisecond
	hedgeTimes = 4 // the lateness that one sample in a hundred exceeds
	// Where storage is slow, the others wait for it as this node does, and reading their samples would make it slower. So
	// the time of a read, or the wait for an own chunk, is added so many times; up to mostHedge, when a node that is silent
	// is no longer connected.
	storageTimes = 2
	mostHedge    = 2 * time.Second
)

// How many samples in a row must come in time until a node that was late is relied on again.
const (
	leastProbation = 8
	mostProbation  = 256
)

// punctuality is what a run knows of how the other nodes keep their time.
type punctuality struct {
	nodes   []conduct
	hedge   atomic.Int64 // ns
	storage atomic.Int64 // ns that this node has lately waited for an own chunk

	mu   sync.Mutex
	late [48]uint32 // samples that came, by the bits of how many µs they were late
	seen uint32
}

// conduct is one node's.
type conduct struct {
	probation atomic.Bool
	// Guarded by punctuality.mu.
	streak, need int
}

func newPunctuality(nodes int) *punctuality {
	p := &punctuality{nodes: make([]conduct, nodes)}
	p.hedge.Store(int64(firstHedge))
	return p
}

// patience is how long to wait for a sample that is late, where a read takes so long.
func (p *punctuality) patience(read time.Duration) time.Duration {
	storage := max(read, time.Duration(p.storage.Load()))
	return min(time.Duration(p.hedge.Load())+storageTimes*storage, mostHedge)
}

// waited notes the longest wait of a job for an own chunk. Those of earlier jobs count less and less.
func (p *punctuality) waited(longest time.Duration) {
	for {
		was := p.storage.Load()
		if p.storage.CompareAndSwap(was, max(int64(longest), was*3/4)) {
			return
		}
	}
}

// onProbation says that a node was late and has not made up for it: what it owes is read from storage ahead.
func (p *punctuality) onProbation(node uint16) bool { return p.nodes[node].probation.Load() }

// asked notes whether a sample was there when it was asked for. released: its owner is relied on again.
func (p *punctuality) asked(node uint16, here bool) (released bool) {
	c := &p.nodes[node]
	if !c.probation.Load() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !here {
		c.streak = 0
		return false
	}
	c.streak++
	if c.streak < c.need || !c.probation.Load() {
		return false
	}
	c.probation.Store(false)
	return true
}

// tooLate puts a node on probation, for longer each time. first: it was not on probation.
func (p *punctuality) tooLate(node uint16) (first bool) {
	c := &p.nodes[node]
	p.mu.Lock()
	defer p.mu.Unlock()
	c.streak = 0
	if c.probation.Load() {
		return false
	}
	c.need = min(max(2*c.need, leastProbation), mostProbation)
	c.probation.Store(true)
	return true
}

// recount is after how many samples the hedge time is computed anew, memory how many count.
const (
	recount = 64
	memory  = 4096
)

// came notes how late a sample came, 0 if it was there.
func (p *punctuality) came(late time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late[min(bits.Len64(uint64(late.Microseconds())), len(p.late)-1)]++
	if p.seen++; p.seen%recount != 0 {
		return
	}
	total := uint32(0)
	for _, n := range p.late {
		total += n
	}
	above := uint32(0)
	for b := len(p.late) - 1; b >= 0; b-- {
		if above += p.late[b]; above*100 > total || b == 0 {
			p.hedge.Store(int64(min(max(leastHedge, hedgeTimes*(1<<b)*time.Microsecond), firstHedge)))
			break
		}
	}
	if total > memory {
		for b := range p.late {
			p.late[b] /= 2
		}
	}
}
