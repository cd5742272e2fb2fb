// Package exchangetest has an exchange between nodes of one process, for tests: no sockets, no keys, and the time that
// the caller's clock says (it is made for testing/synctest). It keeps the contract of package exchange to the letter
// and panics when its caller does not: credit is enforced, every ordinal is compared on both sides, and data is
// overwritten as soon as nobody may look at it any more.
//
// Links have a delay and a bandwidth, nodes can be killed, frozen and brought back. It is imported by tests only.
package exchangetest

import (
	"fmt"
	"sync"
	"time"

	"github.com/redox-loader/redox/golib/internal/exchange"
)

// Notice is how long it takes until a node that says nothing counts as not connected.
const Notice = 2 * time.Second

// window is how many bytes a link takes before what was taken earlier has arrived.
const window = 64 << 10

// Network connects nodes. Its methods may be called at any time from any goroutine.
type Network struct {
	mu     sync.Mutex
	nodes  []*Node
	links  [][]*link // from, to
	closed chan struct{}
	work   sync.WaitGroup

	gone map[goneID]bool // passes that a node has left
	// What is called when the lock is not held any more, in order.
	after []func()
}

type goneID struct {
	node int
	id   exchange.ID
}

// Node is one node's exchange.
type Node struct {
	net    *Network
	number int
	frozen bool
	dead   bool
	lanes  map[laneID]*lane
	stats  []exchange.Stats
}

var _ exchange.Exchange = (*Node)(nil)

type laneID struct {
	id   exchange.ID
	rank int
}

// link carries messages one way. Down is a connection that both ends know to be gone.
type link struct {
	delay     time.Duration
	bandwidth int64 // bytes a second; 0: no bound
	queue     []message
	bytes     int64 // in the queue and under way
	ready     chan struct{}
	down      bool
	era       int // of the connection: what was sent in an earlier one is lost
}

type message struct {
	at     time.Time // earliest arrival
	bytes  int64
	era    int
	arrive func() // with the network's lock held
}

// New returns nodes that are all connected, each link with this delay.
func New(nodes int, delay time.Duration) *Network {
	n := &Network{closed: make(chan struct{}), gone: map[goneID]bool{}}
	for i := range nodes {
		n.nodes = append(n.nodes, &Node{net: n, number: i, lanes: map[laneID]*lane{}, stats: make([]exchange.Stats, nodes)})
		n.links = append(n.links, make([]*link, nodes))
		for to := range nodes {
			n.links[i][to] = &link{delay: delay, ready: make(chan struct{}, 1)}
		}
	}
	for from := range nodes {
		for to := range nodes {
			if to != from {
				n.work.Go(func() { n.carry(from, to) })
			}
		}
	}
	return n
}

// Node is a node's exchange.
func (n *Network) Node(i int) *Node { return n.nodes[i] }

// Close ends the network. All lanes must have been closed.
func (n *Network) Close() {
	n.mu.Lock()
	for _, node := range n.nodes {
		if len(node.lanes) > 0 && !node.dead {
			n.mu.Unlock()
			panic(fmt.Sprintf("exchangetest: node %d still has %d lanes", node.number, len(node.lanes)))
		}
	}
	close(n.closed)
	n.mu.Unlock()
	n.work.Wait()
}

// unlock ends a call and then does what must not be done under the lock: callbacks.
func (n *Network) unlock() {
	after := n.after
	n.after = nil
	n.mu.Unlock()
	for _, f := range after {
		f()
	}
}

// Slow sets what a link can carry; 0 is no bound.
func (n *Network) Slow(from, to int, bytesPerSecond int64) {
	n.mu.Lock()
	n.links[from][to].bandwidth = bytesPerSecond
	n.mu.Unlock()
}

// Delay sets a link's delay.
func (n *Network) Delay(from, to int, d time.Duration) {
	n.mu.Lock()
	n.links[from][to].delay = d
	n.mu.Unlock()
}

// Kill ends a node's part for good: nothing leaves it or comes to it. Its own lanes must still be closed by whoever has
// them. The others notice at once if told, as with a process that is killed, else after Notice.
func (n *Network) Kill(node int, told bool) {
	n.mu.Lock()
	n.nodes[node].dead = true
	n.unlock()
	if told {
		n.part(node)
		return
	}
	n.later(func() bool { return n.nodes[node].dead }, node)
}

// Freeze stops a node's network, or lets it go on. If it lasts longer than Notice, its connections are gone until it
// thaws.
func (n *Network) Freeze(node int, frozen bool) {
	n.mu.Lock()
	x := n.nodes[node]
	was := x.frozen
	x.frozen = frozen
	n.unlock()
	if frozen && !was {
		n.later(func() bool { return x.frozen }, node)
	}
	if !frozen && was {
		n.meet(node)
	}
}

// later parts a node from the others after Notice, if it is still away then.
func (n *Network) later(away func() bool, node int) {
	n.work.Go(func() {
		select {
		case <-time.After(Notice):
		case <-n.closed:
			return
		}
		n.mu.Lock()
		gone := away()
		n.unlock()
		if gone {
			n.part(node)
		}
	})
}

// part takes down a node's connections: both ends know.
func (n *Network) part(node int) {
	n.mu.Lock()
	for other := range n.nodes {
		if other != node && !n.links[node][other].down {
			for _, l := range []*link{n.links[node][other], n.links[other][node]} {
				l.down = true
				l.era++
			}
			n.nodes[node].lose(other)
			n.nodes[other].lose(node)
		}
	}
	n.unlock()
}

// meet connects a node again, and both ends say what credit they give.
func (n *Network) meet(node int) {
	n.mu.Lock()
	for other := range n.nodes {
		if other == node || n.nodes[other].dead || n.nodes[other].frozen || n.nodes[node].dead {
			continue
		}
		n.links[node][other].down, n.links[other][node].down = false, false
		for _, pair := range [][2]int{{node, other}, {other, node}} {
			n.wakeLink(pair[0], pair[1])
			for _, l := range n.nodes[pair[0]].lanes {
				l.tellCredit(pair[1])
			}
			for _, l := range n.nodes[pair[0]].lanes {
				l.pump(pair[1])
			}
		}
	}
	n.unlock()
}

// send puts a message on a link; lost if the link is down. n.mu is held.
func (n *Network) send(from, to int, bytes int64, arrive func()) {
	l := n.links[from][to]
	if l.down {
		return
	}
	l.bytes += bytes
	l.queue = append(l.queue, message{time.Now().Add(l.delay), bytes, l.era, arrive})
	n.wakeLink(from, to)
}

func (n *Network) wakeLink(from, to int) {
	select {
	case n.links[from][to].ready <- struct{}{}:
	default:
	}
}

// carry delivers what a link holds, in order.
func (n *Network) carry(from, to int) {
	l := n.links[from][to]
	for {
		n.mu.Lock()
		still := n.nodes[from].frozen || n.nodes[to].frozen || n.nodes[from].dead || n.nodes[to].dead
		if len(l.queue) == 0 || still && !l.down {
			n.mu.Unlock()
			select {
			case <-l.ready:
			case <-n.closed:
				return
			}
			continue
		}
		m := l.queue[0]
		wait := time.Until(m.at)
		if l.bandwidth > 0 {
			wait = max(wait, time.Duration(m.bytes*int64(time.Second)/l.bandwidth))
		}
		if m.era != l.era {
			wait = 0
		}
		n.mu.Unlock()
		if wait > 0 {
			select {
			case <-time.After(wait):
			case <-n.closed:
				return
			}
		}
		n.mu.Lock()
		still = n.nodes[from].frozen || n.nodes[to].frozen || n.nodes[from].dead || n.nodes[to].dead
		if still && m.era == l.era {
			n.mu.Unlock()
			continue
		}
		l.queue = l.queue[1:]
		l.bytes -= m.bytes
		if m.era == l.era {
			m.arrive()
		}
		for _, lane := range n.nodes[from].lanes {
			lane.pump(to)
		}
		n.unlock()
	}
}

// Nodes implements exchange.Exchange.
func (x *Node) Nodes() int { return len(x.net.nodes) }

// Node implements exchange.Exchange.
func (x *Node) Node() int { return x.number }

// Stats implements exchange.Exchange.
func (x *Node) Stats() []exchange.Stats {
	x.net.mu.Lock()
	defer x.net.mu.Unlock()
	return append([]exchange.Stats(nil), x.stats...)
}
