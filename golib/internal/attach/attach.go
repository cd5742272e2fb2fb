// Package attach serves batches to other processes of the node: DataLoader workers, and ranks that share an engine. It
// is for package redox, which gives it loaders to serve (Data, Loader) and a listening socket.
//
//	server   the socket, the trainers it lives for, all that is guarded by its one lock
//	client   one connection: reads messages, answers them
//	trainer  a training process, held by a pidfd; its epochs
//	pass     one iteration over an epoch: which batch goes to which worker
//	exact    samples by number, for code that has its own order
//	loan     a batch in a slot, with the processes that hold it
//	look     what the server does at one moment, for `redox top`
//	meeting  which client meets the other nodes' clients for the server
//
// What crosses the socket are small messages (wire.go; docs/attached.md has them exactly); batches stay where they were
// assembled, in a memfd that clients map. Nothing here knows what is in a batch, or in which order batches come.
//
// Why one lock: there are a few messages a batch. Assembly and waits happen outside of it.
package attach

import (
	"time"

	"github.com/redox-loader/redox/golib/internal/node"
)

// Data is the data set that a server serves, with the options that its first client brought.
type Data interface {
	// NewLoader makes a loader for a rank that assembles up to `ahead` batches ahead, in the memory of the others.
	NewLoader(rank, ahead int) (Loader, error)
	// Exact returns what reads samples by number, in the memory of loaders. Called as NewLoader is, once.
	Exact() (Exact, error)
	// Card is what other nodes must know of this one, for a client that can tell them; nil where there is nobody to meet,
	// or everybody is there. rank is one of this node's.
	Card(rank int) ([]byte, error)
	// Meet gives the cards of all nodes. It waits until they are connected; with 0 not at all.
	Meet(cards []byte, timeout time.Duration) error
	// Origin tells where samples came from.
	Origin(numbers []int64) (sources []int64, keys []string, err error)
	// Info is JSON for those who look: path, options.
	Info() []byte
	Close()
}

// Loader is one rank's way through the epochs, one at a time.
type Loader interface {
	Begin(epoch uint64, position int64) error // what was under way ends
	Acquire(b *node.Batch, timeout time.Duration) (*node.Slot, error)
	Slots() int                              // batches that can be assembled, lent or free at once
	Memory() (fd uintptr, size int64)        // where slots lie
	NewResult(size, pool int64) *node.Result // see node.Engine; nil: no room
	Size() int64                             // samples of an epoch
	Batches() int64                          // of this rank from Begin's position on
	Check(state []byte) error                // whether a state is one of this order
	State(epoch uint64, position int64) ([]byte, error)
	Stats() ([]byte, error)
	Sight() node.Sight
	Stall() error                     // of one who has waited for too long
	Rest(timeout time.Duration) error // until what other nodes may still want has been sent
	Cancel()
	Close() error
}

// Exact gives samples by number; safe for concurrent use.
type Exact interface {
	Look(numbers []int64, timeout time.Duration) (*node.Exact, error)
	// Room and Fill are those of node.Exact, within the limits that the options set; Fill counts for a rank.
	Room(x *node.Exact, workers int) (ok, scarce bool, err error)
	Fill(x *node.Exact, rank int, timeout time.Duration) (*node.Result, error)
	Memory() (fd uintptr, size int64)
	NewResult(size, pool int64) *node.Result
	Stats(rank int) ([]byte, error)
	Sight() node.Sight
	Close()
}

// Opener opens the data set that a first client asks for. subset has stored numbers where the options need a list.
type Opener func(options []byte, subset []int64) (Data, error)

// Logger takes a line for the log.
type Logger func(level, message string)
