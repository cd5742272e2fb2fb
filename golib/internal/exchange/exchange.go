// Package exchange is the door between a node's work on a plan (package node) and the connections to other nodes
// (package peer): owner and receiver know the plan, so the owner sends each sample before it is asked for. Only words
// and types; no behaviour.
//
// Each rank has one lane for each pass over an epoch. What other nodes send it are its *incoming* samples, numbered in
// the plan's order whoever sends them: the ordinals of the lane. Credit counts ordinals.
package exchange

// Exchange opens lanes. Safe for concurrent use.
type Exchange interface {
	// Nodes is how many nodes there are; Node is this one.
	Nodes() int
	Node() int
	// Open begins a lane. Two live lanes of one process never have the same ID and rank.
	Open(Config) (Lane, error)
	// Stats are the counters for each node, this one's are zero.
	Stats() []Stats
}

// ID is one pass over (the rest of) an epoch, the same on all nodes: the Nth pass over this epoch that begins at From.
type ID struct {
	Epoch, Nth uint64
	From       int64 // global position
}

// Config is one rank's part in a pass.
type Config struct {
	ID      ID
	Rank    int   // of this process, in the world
	Ranks   []int // ranks of each node: rank numbers ascend over the nodes
	Credit  int   // incoming samples that may be in memory here at once, at least 2
	Largest int   // bytes of the largest sample as stored that may come
	// Notify is called after something of the lane has changed: a sample has come, or will not come, or there is credit
	// to send again. It must not wait, nor call the lane.
	Notify func()
}

// Sample is a sample as it lies in its chunk.
type Sample struct {
	Data   []byte // prefix and body, perhaps compressed
	Prefix uint32 // bytes of Data that are the prefix
	Raw    uint64 // bytes of the decoded body
	CRC    uint32 // CRC-32C of Data, from the chunk's table
}

// Status is what became of an incoming sample.
type Status uint8

// An incoming sample is on its way, has come, or will not come: its owner has dropped it, has left the pass, or is not
// connected.
const (
	Coming Status = iota
	Here
	Lost
)

// Outgoing is a sample for another rank.
type Outgoing struct {
	To       int    // rank in the world
	Ordinal  uint64 // among the incoming samples of that rank
	Position int64  // in the global order
	Sample
	// Done is called exactly once, from any goroutine, when Data is not needed any more: it was sent (true), or will
	// never be (false). It must not wait, nor call the lane.
	Done func(sent bool)
}

// Lane is one rank's exchange with all other nodes during one pass. Safe for concurrent use. No call waits for a peer.
type Lane interface {
	// Expect says where the next incoming sample comes from: the position it has in the global order, and the node that
	// owns it. Ordinals count the calls, from 0. A caller is never more than Credit ordinals ahead of Done; with each
	// call there is credit for one sample more.
	Expect(position int64, owner int)
	// Look says what became of an incoming sample. The data stays as it is until Done has passed the ordinal. A sample
	// that was verified against its checksum is the only kind that is Here.
	Look(ordinal uint64) (Sample, Status)
	// Done says that the incoming samples below this ordinal are not needed any more, come or not. Monotone.
	Done(below uint64)
	// Send queues a sample. Those for one rank must be given in the order of their ordinals (gaps are samples of other
	// owners, or ones that Skip named). They leave in this order as far as the receiver gives credit.
	Send(Outgoing)
	// Skip tells a receiver that the sample will not come.
	Skip(to int, ordinal uint64)
	// Shed gives up what is queued below a global position, as Skip does: the memory is needed. Done(false) has been
	// called for all of it when it returns, but for samples that are being written just now.
	Shed(below int64)
	// Owes says whether samples that were given to Send are still to go to a node that is connected.
	Owes() bool
	// Close ends the lane. Receivers are told that nothing more comes. Done(false) is called for what was not sent.
	Close()
}

// Stats are the counters of the exchange with one other node.
type Stats struct {
	BytesIn, BytesOut     int64 // of samples, as stored
	SamplesIn, SamplesOut int64
	Useless               int64 // samples that came when nobody needed them any more
	Refused               int64 // connections that were refused, whoever tried
	Dropped               int64 // samples that this side gave up sending
	Connects              int64 // connections that were accepted
	Connected             bool
}
