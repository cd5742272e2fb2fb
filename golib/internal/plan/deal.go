package plan

import (
	"math"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// Pad says what becomes of a last global batch that the ranks can't share equally.
type Pad uint8

const (
	PadWrap Pad = iota // it is filled up with the epoch's first samples
	PadMark            // the same; the user is told which ones they are
	PadNone            // the first ranks get a sample more than the others
)

// ExchangeMode says which rank of a global batch gets which of its samples.
type ExchangeMode uint8

const (
	Local   ExchangeMode = iota // those of its own node first; the fewest possible cross the network
	Uniform                     // random ones
	Off                         // as Local, but nothing crosses: what would is read from storage, sample by sample
)

// Exchange is the assignment inside a global batch. The set of the batch is the same in all of them.
type Exchange struct {
	Mode     ExchangeMode
	Fraction float64 // of the samples that Local would assign, how many are exchanged at random, 0 to 1
}

// World is who trains: how many ranks each node has, and how they cut the order into batches.
type World struct {
	Nodes     []int // ranks of each node; rank numbers ascend with the nodes
	BatchSize int   // samples a rank gets at once
	DropLast  bool  // leave out the samples that fill no global batch
	Pad       Pad
	Exchange  Exchange
}

// Ranks returns the number of ranks.
func (w *World) Ranks() (n int) {
	for _, ranks := range w.Nodes {
		n += ranks
	}
	return n
}

// maxGlobalBatch keeps places in a global batch within Item.Pos.
const maxGlobalBatch = math.MaxInt32

func (w *World) check() error {
	if len(w.Nodes) == 0 || len(w.Nodes) > math.MaxUint16 {
		return fault.New(fault.Invalid, "nodes: there are %d, it must be 1 to %d", len(w.Nodes), math.MaxUint16)
	}
	ranks := int64(0)
	for i, n := range w.Nodes {
		if n < 1 || n > maxGlobalBatch {
			return fault.New(fault.Invalid, "nodes: node %d has %d ranks", i, n)
		}
		ranks += int64(n)
	}
	if w.BatchSize < 1 || int64(w.BatchSize) > maxGlobalBatch/ranks {
		return fault.New(fault.Invalid, "batch_size is %d: for %d ranks it must be 1 to %d", w.BatchSize, ranks, maxGlobalBatch/ranks)
	}
	if f := w.Exchange.Fraction; !(f >= 0 && f <= 1) {
		return fault.New(fault.Invalid, "exchange is %v: a fraction must be 0 to 1", f)
	}
	return nil
}

// Item is one sample of a rank's batch.
type Item struct {
	Pos int32 // index into GlobalBatch.Picks
	Pad bool  // a repetition that fills the batch up
}

// GlobalBatch is the next ranks x batch size positions of the global order, and who gets which of them. It belongs to
// its Deal and is valid until the next call of Next or Skip.
type GlobalBatch struct {
	First  int64    // position of Picks[0]
	Picks  []Pick   // the samples in the global order, then those that pad
	Padded int      // how many pad
	Ranks  [][]Item // of each rank its samples, in the order in which it gets them
}

// Deal cuts the rest of an epoch into global batches and deals those to the ranks. It is a function of plan, epoch,
// world and cursor: every node computes the same. Not for concurrent use. Memory: about 24 bytes for each sample of a
// global batch.
type Deal struct {
	epoch      *Epoch
	world      World
	ranks      int64
	homes      []uint16 // of each partition
	from       int64
	walk       *Walk
	pads       []Pick // of the last batch
	batch      GlobalBatch
	assignment assignment
}

// Deal returns the global batches from a cursor on: a position, 0 for the whole epoch. The cursor may come from another
// world, with other batches.
func (e *Epoch) Deal(w World, from int64) (*Deal, error) {
	if err := w.check(); err != nil {
		return nil, err
	}
	if from < 0 || from > e.plan.size {
		return nil, fault.New(fault.State, "position %d is not in the epoch, which has %d samples", from, e.plan.size)
	}
	w.Nodes = append([]int(nil), w.Nodes...)
	d := &Deal{
		epoch: e,
		world: w,
		ranks: int64(w.Ranks()),
		homes: e.plan.Homes(w.Nodes, e.number),
		from:  from,
		walk:  e.Walk(from),
	}
	if pad := d.padding(); pad > 0 {
		d.pads = e.firstPicks(int(pad))
	}
	capacity := min(d.globalBatch(), e.plan.size-from+int64(len(d.pads)))
	d.batch.Picks = make([]Pick, 0, capacity)
	d.assignment = newAssignment(d, int(capacity))
	return d, nil
}

// firstPicks returns the first n picks of the epoch, and over again if it has fewer.
func (e *Epoch) firstPicks(n int) []Pick {
	picks := make([]Pick, 0, n)
	for len(picks) < n {
		w := e.Walk(0)
		got := w.Next(picks[len(picks):n])
		picks = picks[:len(picks)+got]
	}
	return picks
}

func (d *Deal) globalBatch() int64 { return d.ranks * int64(d.world.BatchSize) }

// rest returns the samples that are left for the last global batch, which is not a full one.
func (d *Deal) rest() int64 { return (d.epoch.plan.size - d.from) % d.globalBatch() }

// padding returns how many samples are repeated to make the last global batch a multiple of the ranks.
func (d *Deal) padding() int64 {
	if d.world.DropLast || d.world.Pad == PadNone {
		return 0
	}
	return (d.ranks - d.rest()%d.ranks) % d.ranks
}

// Batches returns the number of global batches from the cursor on. With PadNone a rank may get nothing of the last one.
func (d *Deal) Batches() int64 {
	full := (d.epoch.plan.size - d.from) / d.globalBatch()
	if d.rest() > 0 && !d.world.DropLast {
		full++
	}
	return full
}

// Samples returns how many samples a rank gets from the cursor on, padding included.
func (d *Deal) Samples(rank int) int64 {
	full := (d.epoch.plan.size - d.from) / d.globalBatch() * int64(d.world.BatchSize)
	if d.world.DropLast {
		return full
	}
	return full + share(d.rest()+d.padding(), d.ranks, int64(rank))
}

// RankBatches returns how many batches with samples a rank gets from the cursor on.
func (d *Deal) RankBatches(rank int) int64 {
	return (d.Samples(rank) + int64(d.world.BatchSize) - 1) / int64(d.world.BatchSize)
}

// share returns a rank's part of samples that are split as evenly as possible: the first ranks get one more.
func share(samples, ranks, rank int64) int64 {
	n := samples / ranks
	if rank < samples%ranks {
		n++
	}
	return n
}

// Position returns the position of the next global batch.
func (d *Deal) Position() int64 { return d.walk.Position() }

// Skip passes over some global batches without the cost of making them.
func (d *Deal) Skip(batches int64) {
	batches = max(0, batches)
	if left := d.epoch.plan.size - d.walk.position; batches > left/d.globalBatch() {
		d.walk.skip(left)
		return
	}
	d.walk.skip(batches * d.globalBatch())
}

// Next returns the next global batch, false after the last. Its memory is used again by the next call.
func (d *Deal) Next() (*GlobalBatch, bool) {
	b := &d.batch
	left := d.epoch.plan.size - d.walk.position
	if left <= 0 || d.world.DropLast && left < d.globalBatch() {
		return nil, false
	}
	b.First = d.walk.position
	b.Picks = b.Picks[:min(left, d.globalBatch())]
	d.walk.Next(b.Picks)
	b.Padded = 0
	if left < d.globalBatch() {
		b.Picks = append(b.Picks, d.pads...)
		b.Padded = len(d.pads)
	}
	b.Ranks = d.assignment.assign(b)
	return b, true
}
