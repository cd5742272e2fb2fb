package exchangetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/redox-loader/redox/golib/internal/exchange"
)

// poison overwrites data that nobody may look at any more.
const poison = 0xdb

// lane is one rank's exchange during a pass. All of it is guarded by the network's lock.
type lane struct {
	node   *Node
	config exchange.Config
	key    laneID
	of     []int // node of each rank
	closed bool

	// receiving
	incoming []incoming // by ordinal
	done     uint64
	left     []bool // nodes that have closed their lane
	said     []said // to each node
	held     int64  // bytes

	// sending, by rank
	queues [][]outgoing
	credit []uint64
	next   []uint64 // ordinals below were given by Send or Skip
}

// outgoing is a sample to send, or word that it will not come.
type outgoing struct {
	exchange.Outgoing
	skip bool
}

// said is the last word of credit that is on its way to a node.
type said struct {
	at   time.Time
	upto *uint64
}

type incoming struct {
	position int64
	owner    int
	status   exchange.Status
	sample   exchange.Sample
}

// Open implements exchange.Exchange.
func (x *Node) Open(c exchange.Config) (exchange.Lane, error) {
	n := x.net
	n.mu.Lock()
	defer n.unlock()
	l := &lane{node: x, config: c, key: laneID{c.ID, c.Rank}, left: make([]bool, len(n.nodes)), said: make([]said, len(n.nodes))}
	for node, ranks := range c.Ranks {
		for range ranks {
			l.of = append(l.of, node)
		}
	}
	l.queues = make([][]outgoing, len(l.of))
	l.credit, l.next = make([]uint64, len(l.of)), make([]uint64, len(l.of))
	switch {
	case len(c.Ranks) != len(n.nodes):
		misuse("%d nodes in a world of %d", len(c.Ranks), len(n.nodes))
	case c.Rank < 0 || c.Rank >= len(l.of) || l.of[c.Rank] != x.number:
		misuse("rank %d is not of node %d", c.Rank, x.number)
	case c.Credit < 2 || c.Largest < 0 || c.Notify == nil:
		misuse("config %+v", c)
	case x.lanes[l.key] != nil:
		misuse("two lanes %+v", l.key)
	}
	x.lanes[l.key] = l
	// What the others' lanes of this pass have said already.
	for _, other := range n.nodes {
		l.left[other.number] = n.gone[goneID{other.number, c.ID}]
		for _, o := range other.lanes {
			if other != x && o.key.id == c.ID {
				o.tellCredit(x.number)
			}
		}
	}
	return l, nil
}

func misuse(format string, args ...any) {
	panic("exchangetest: " + fmt.Sprintf(format, args...))
}

func (l *lane) live() {
	if l.closed {
		misuse("a closed lane is used")
	}
}

// lanesOf are the lanes of this pass on a node.
func (l *lane) lanesOf(node int) (lanes []*lane) {
	for _, o := range l.node.net.nodes[node].lanes {
		if o.key.id == l.key.id {
			lanes = append(lanes, o)
		}
	}
	slices.SortFunc(lanes, func(a, b *lane) int { return a.key.rank - b.key.rank })
	return lanes
}

// Expect implements exchange.Lane.
func (l *lane) Expect(position int64, owner int) {
	n := l.node.net
	n.mu.Lock()
	defer n.unlock()
	l.live()
	if len(l.incoming) >= int(l.done)+l.config.Credit {
		misuse("sample %d is expected with credit %d and %d done", len(l.incoming), l.config.Credit, l.done)
	}
	if owner == l.node.number || owner < 0 || owner >= len(n.nodes) {
		misuse("node %d expects a sample from node %d", l.node.number, owner)
	}
	if k := len(l.incoming); k > 0 && l.incoming[k-1].position >= position {
		misuse("position %d is expected after %d", position, l.incoming[k-1].position)
	}
	in := incoming{position: position, owner: owner}
	if l.left[owner] || n.links[owner][l.node.number].down {
		in.status = exchange.Lost
	}
	l.incoming = append(l.incoming, in)
	for other := range n.nodes {
		if other != l.node.number {
			l.tellCredit(other)
		}
	}
}

// tellCredit says to the lanes of a node how much may come.
func (l *lane) tellCredit(node int) {
	upto, rank, id := uint64(len(l.incoming)), l.key.rank, l.key.id
	n := l.node.net
	now := time.Now()
	if s := &l.said[node]; s.upto != nil && s.at.Equal(now) {
		*s.upto = upto // one frame
		return
	}
	word := upto
	l.said[node] = said{now, &word}
	n.send(l.node.number, node, 0, func() {
		for _, o := range n.nodes[node].lanes {
			if o.key.id == id && o.credit[rank] < word {
				o.credit[rank] = word
				o.pump(l.node.number)
				n.after = append(n.after, o.config.Notify)
			}
		}
	})
}

// Look implements exchange.Lane.
func (l *lane) Look(ordinal uint64) (exchange.Sample, exchange.Status) {
	n := l.node.net
	n.mu.Lock()
	defer n.unlock()
	l.live()
	if ordinal >= uint64(len(l.incoming)) || ordinal < l.done {
		misuse("look at %d of %d, %d of them done", ordinal, len(l.incoming), l.done)
	}
	in := &l.incoming[ordinal]
	return in.sample, in.status
}

// Done implements exchange.Lane.
func (l *lane) Done(below uint64) {
	n := l.node.net
	n.mu.Lock()
	defer n.unlock()
	l.live()
	if below < l.done || below > uint64(len(l.incoming)) {
		misuse("%d are done after %d, of %d", below, l.done, len(l.incoming))
	}
	for ; l.done < below; l.done++ {
		l.forget(&l.incoming[l.done])
	}
}

func (l *lane) forget(in *incoming) {
	l.held -= int64(len(in.sample.Data))
	for i := range in.sample.Data {
		in.sample.Data[i] = poison
	}
	in.sample = exchange.Sample{}
}

func (l *lane) arrive(ordinal uint64, position int64, owner int, s exchange.Sample) {
	if ordinal >= uint64(len(l.incoming)) {
		misuse("rank %d: sample %d came, %d were expected", l.key.rank, ordinal, len(l.incoming))
	}
	in := &l.incoming[ordinal]
	if in.position != position || in.owner != owner {
		misuse("rank %d: sample %d is at %d of node %d, node %d sent position %d", l.key.rank, ordinal, in.position, in.owner, owner, position)
	}
	if len(s.Data) > l.config.Largest {
		misuse("a sample of %d bytes, the largest is %d", len(s.Data), l.config.Largest)
	}
	st := &l.node.stats[owner]
	if ordinal < l.done || in.status != exchange.Coming {
		st.Useless++
		return
	}
	st.SamplesIn++
	st.BytesIn += int64(len(s.Data))
	in.sample, in.status = s, exchange.Here
	l.held += int64(len(s.Data))
	l.node.net.after = append(l.node.net.after, l.config.Notify)
}

// Close implements exchange.Lane.
func (l *lane) Close() {
	n := l.node.net
	n.mu.Lock()
	defer n.unlock()
	l.live()
	for _, queue := range l.queues {
		for _, o := range queue {
			if !o.skip {
				n.after = append(n.after, func() { o.Done(false) })
			}
		}
	}
	for i := range l.incoming {
		l.forget(&l.incoming[i])
	}
	l.closed = true
	delete(l.node.lanes, l.key)
	id, owner := l.key.id, l.node.number
	if len(l.lanesOf(owner)) > 0 {
		return // other ranks of this node still send
	}
	n.gone[goneID{owner, id}] = true
	for other := range n.nodes {
		if other == owner {
			continue
		}
		n.send(owner, other, 0, func() {
			for _, r := range n.nodes[other].lanes {
				if r.key.id == id {
					r.abandon(owner)
				}
			}
		})
	}
}

// abandon marks all that a node would still send as lost.
func (l *lane) abandon(owner int) {
	l.left[owner] = true
	l.loseFrom(owner)
}

func (l *lane) loseFrom(owner int) {
	changed := false
	for i := l.done; i < uint64(len(l.incoming)); i++ {
		if in := &l.incoming[i]; in.owner == owner && in.status == exchange.Coming {
			in.status, changed = exchange.Lost, true
		}
	}
	if changed {
		l.node.net.after = append(l.node.net.after, l.config.Notify)
	}
}

// lose is the end of the connection to another node: what it would have sent is lost, and what was queued for it below
// its credit is given up, since nobody knows how much of it has come.
func (x *Node) lose(other int) {
	for _, l := range x.lanes {
		l.loseFrom(other)
		for to := range l.queues {
			if l.of[to] != other {
				continue
			}
			for len(l.queues[to]) > 0 && l.queues[to][0].Ordinal < l.credit[to] {
				o := l.queues[to][0]
				l.queues[to] = l.queues[to][1:]
				x.stats[other].Dropped++
				if !o.skip {
					x.net.after = append(x.net.after, func() { o.Done(false) })
				}
			}
		}
	}
}
