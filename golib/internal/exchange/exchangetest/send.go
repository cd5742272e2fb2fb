package exchangetest

import (
	"hash/crc32"
	"slices"

	"github.com/redox-loader/redox/golib/internal/exchange"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Send implements exchange.Lane.
func (l *lane) Send(o exchange.Outgoing) {
	n := l.node.net
	n.mu.Lock()
	defer n.unlock()
	l.give(o.To, o.Ordinal)
	l.queues[o.To] = append(l.queues[o.To], outgoing{Outgoing: o})
	l.pump(l.of[o.To])
}

// give checks that a rank's samples are given in order.
func (l *lane) give(to int, ordinal uint64) {
	l.live()
	if to < 0 || to >= len(l.of) || l.of[to] == l.node.number {
		misuse("a sample for rank %d from node %d", to, l.node.number)
	}
	if ordinal < l.next[to] {
		misuse("sample %d for rank %d after %d", ordinal, to, l.next[to])
	}
	l.next[to] = ordinal + 1
}

// Skip implements exchange.Lane.
func (l *lane) Skip(to int, ordinal uint64) {
	n := l.node.net
	n.mu.Lock()
	defer n.unlock()
	l.give(to, ordinal)
	l.queues[to] = append(l.queues[to], outgoing{exchange.Outgoing{To: to, Ordinal: ordinal}, true})
	l.pump(l.of[to])
}

// tellLost says that a sample will not come.
func (l *lane) tellLost(to int, ordinal uint64) {
	n := l.node.net
	l.node.stats[l.of[to]].Dropped++
	key := laneID{l.key.id, to}
	owner := l.node.number
	n.send(owner, l.of[to], 0, func() {
		if r := n.nodes[l.of[to]].lanes[key]; r != nil {
			r.lost(ordinal, owner)
		}
	})
}

func (l *lane) lost(ordinal uint64, owner int) {
	in := &l.incoming[ordinal]
	if in.owner != owner {
		misuse("node %d drops a sample of node %d", owner, in.owner)
	}
	if ordinal >= l.done && in.status == exchange.Coming {
		in.status = exchange.Lost
		l.node.net.after = append(l.node.net.after, l.config.Notify)
	}
}

// Shed implements exchange.Lane.
func (l *lane) Shed(below int64) {
	n := l.node.net
	n.mu.Lock()
	defer n.unlock()
	l.live()
	for to, queue := range l.queues {
		for i := range queue {
			if o := &queue[i]; !o.skip && o.Position < below {
				done := o.Done
				n.after = append(n.after, func() { done(false) })
				*o = outgoing{exchange.Outgoing{To: to, Ordinal: o.Ordinal, Position: o.Position}, true}
			}
		}
	}
	for node := range n.nodes {
		l.pump(node)
	}
}

// Owes implements exchange.Lane.
func (l *lane) Owes() bool {
	n := l.node.net
	n.mu.Lock()
	defer n.unlock()
	for to, queue := range l.queues {
		if len(queue) > 0 && !n.links[l.node.number][l.of[to]].down {
			return true
		}
	}
	return false
}

// pump sends what credit and link allow to the ranks of a node, in the order of positions.
func (l *lane) pump(node int) {
	n := l.node.net
	link := n.links[l.node.number][node]
	for !l.closed && !link.down && !l.node.dead && link.bytes < window {
		best := -1
		for to, queue := range l.queues {
			if l.of[to] != node || len(queue) == 0 || queue[0].Ordinal >= l.credit[to] {
				continue
			}
			if best < 0 || queue[0].Position < l.queues[best][0].Position {
				best = to
			}
		}
		if best < 0 {
			return
		}
		o := l.queues[best][0]
		l.queues[best] = l.queues[best][1:]
		if o.skip {
			l.tellLost(best, o.Ordinal)
		} else {
			l.transmit(o.Outgoing)
		}
	}
}

func (l *lane) transmit(o exchange.Outgoing) {
	n := l.node.net
	sample := o.Sample
	if crc32.Checksum(sample.Data, castagnoli) != sample.CRC {
		misuse("sample at position %d has another checksum than it says", o.Position)
	}
	sample.Data = slices.Clone(sample.Data)
	n.after = append(n.after, func() { o.Done(true) })
	l.node.stats[l.of[o.To]].SamplesOut++
	l.node.stats[l.of[o.To]].BytesOut += int64(len(sample.Data))
	key, owner := laneID{l.key.id, o.To}, l.node.number
	n.send(owner, l.of[o.To], int64(len(sample.Data)), func() {
		if r := n.nodes[l.of[o.To]].lanes[key]; r != nil {
			r.arrive(o.Ordinal, o.Position, owner, sample)
		}
	})
}
