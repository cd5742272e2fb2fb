package peer

import (
	"net"
	"slices"

	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/wire"
)

// Config is what a node must know before it can meet the others.
type Config struct {
	Node     int   // this one
	Nodes    int   // how many there are
	Ranks    []int // ranks of each node; rank numbers ascend over the nodes
	Listen   string
	Hash     [32]byte // of all that decides the order of samples; nodes with another one are refused
	Identity Identity // nil: a key of this process, which the others learn from its card
	// Incarnation is higher for each process that stands for this node one after the other; 0 takes it from the clock.
	Incarnation uint64
	Memory      int64 // bound on the QUIC windows of all connections together; 0: what is fastest
	// Log tells what a user may want to know: level "info" or "warning". It must not wait. Nil: nowhere.
	Log func(level, message string)
	// Socket opens the socket; nil: a UDP socket. Tests put a network of their own there.
	Socket func(listen string) (net.PacketConn, error)
}

func (c *Config) check() error {
	if c.Nodes < 1 || c.Nodes > wire.MaxNodes || c.Node < 0 || c.Node >= c.Nodes || len(c.Ranks) != c.Nodes {
		return fault.New(fault.Invalid, "node %d of %d nodes with ranks %v", c.Node, c.Nodes, c.Ranks)
	}
	if slices.Min(c.Ranks) < 1 || slices.Max(c.Ranks) > wire.MaxNodes {
		return fault.New(fault.Invalid, "a node with %d ranks", slices.Min(c.Ranks))
	}
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return fault.Wrap(fault.Invalid, err, "the address to listen on must be host:port")
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return fault.New(fault.Invalid, "the address to listen on, %s, must name an interface of this node: "+
			"the others are told to connect to it", c.Listen)
	}
	if need := int64(c.Nodes-1) * windowLeast; c.Memory != 0 && c.Memory < need {
		e := fault.New(fault.Memory, "connections to %d nodes need %d bytes of windows, %d are given", c.Nodes-1, need, c.Memory)
		e.Needed, e.Given = need, c.Memory
		return e
	}
	return nil
}

// window is the QUIC window of one connection.
func (c *Config) window() uint64 {
	if c.Memory == 0 || c.Nodes < 2 {
		return windowMost
	}
	return uint64(min(c.Memory/int64(c.Nodes-1), windowMost))
}

// firstRank is the lowest rank of a node.
func firstRank(ranks []int, node int) int {
	first := 0
	for _, n := range ranks[:node] {
		first += n
	}
	return first
}

// nodeOf is the node of a rank, -1 for one that does not exist.
func nodeOf(ranks []int, rank int) int {
	if rank < 0 {
		return -1
	}
	for node, n := range ranks {
		if rank < n {
			return node
		}
		rank -= n
	}
	return -1
}
