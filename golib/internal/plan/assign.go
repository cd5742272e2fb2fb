package plan

import (
	"math"

	"github.com/redox-loader/redox/golib/internal/perm"
)

// assignment deals the samples of one global batch after the other to the ranks (Yang and Cong's insight: only the set
// of a global batch matters for the gradient). Its memory is allocated once.
//
// Every rank has a quota of places, the ranks' places lie one after the other, and so do the nodes'. A node's own
// samples fill its places first; those that it has too many, its last ones, go to the free places of other nodes, both
// in ascending order of the nodes, so that at most nodes-1 pairs of nodes exchange anything.
type assignment struct {
	deal     *Deal
	items    []Item   // the places
	ranks    [][]Item // of each rank its places
	dealt    int      // samples that ranks is cut for; 0: none yet
	local    bool     // all ranks are at home everywhere: places are filled in order
	exchange float64  // share of the places whose samples are then exchanged at random
	nodes    []nodeShare
	surplus  []int32 // indices into the picks
	slots    []int32 // places that take part in a random exchange
}

// nodeShare is a node's part of a global batch.
type nodeShare struct {
	begin   int32 // its first place
	quota   int32 // its places
	own     int32 // samples of the batch whose home it is
	taken   int32 // places filled
	surplus int32 // where its next surplus sample goes
}

func newAssignment(d *Deal, capacity int) assignment {
	a := assignment{
		deal:  d,
		items: make([]Item, capacity),
		ranks: make([][]Item, d.ranks),
		local: len(d.world.Nodes) == 1 || !d.epoch.plan.shuffle,
	}
	if d.epoch.plan.shuffle && d.ranks > 1 {
		a.exchange = d.world.Exchange.Fraction
		if d.world.Exchange.Mode == Uniform {
			a.exchange = 1
		}
	}
	if !a.local {
		a.nodes = make([]nodeShare, len(d.world.Nodes))
		a.surplus = make([]int32, capacity)
	}
	if a.exchange > 0 {
		a.slots = make([]int32, capacity)
	}
	return a
}

// assign deals a batch and returns each rank's samples.
func (a *assignment) assign(b *GlobalBatch) [][]Item {
	if a.dealt != len(b.Picks) {
		a.cut(len(b.Picks))
	} else if a.local && a.exchange == 0 && b.Padded == 0 {
		return a.ranks // the same as last time: one node, or stored order
	}
	if a.local {
		for i := range a.items {
			a.items[i] = Item{Pos: int32(i)}
		}
	} else {
		a.localFirst(b)
	}
	if a.exchange > 0 {
		a.scatter(b.First)
	}
	if b.Padded > 0 {
		for i := range a.items {
			a.items[i].Pad = int(a.items[i].Pos) >= len(b.Picks)-b.Padded
		}
	}
	return a.ranks
}

// cut gives the ranks their places in a batch of n samples.
func (a *assignment) cut(n int) {
	a.dealt = n
	a.items = a.items[:n]
	begin := 0
	rank := int64(0)
	for node, ranks := range a.deal.world.Nodes {
		first := begin
		for range ranks {
			quota := int(share(int64(n), a.deal.ranks, rank))
			a.ranks[rank] = a.items[begin : begin+quota : begin+quota]
			begin += quota
			rank++
		}
		if !a.local {
			a.nodes[node] = nodeShare{begin: int32(first), quota: int32(begin - first)}
		}
	}
}

// localFirst fills the places.
func (a *assignment) localFirst(b *GlobalBatch) {
	homes := a.deal.homes
	for i := range a.nodes {
		a.nodes[i].own, a.nodes[i].taken = 0, 0
	}
	samples := b.Picks[:len(b.Picks)-b.Padded]
	for i := range samples {
		a.nodes[homes[samples[i].Partition]].own++
	}
	over := int32(0)
	for i := range a.nodes {
		n := &a.nodes[i]
		n.surplus = over
		over += max(0, n.own-n.quota)
	}
	for i := range samples {
		n := &a.nodes[homes[samples[i].Partition]]
		if n.taken < n.quota {
			a.items[n.begin+n.taken] = Item{Pos: int32(i)}
			n.taken++
		} else {
			a.surplus[n.surplus] = int32(i)
			n.surplus++
		}
	}
	for i := len(samples); i < len(b.Picks); i++ { // what pads is read from storage by whoever gets it
		a.surplus[over] = int32(i)
		over++
	}
	next := 0
	for i := range a.nodes {
		for n := &a.nodes[i]; n.taken < n.quota; n.taken++ {
			a.items[n.begin+n.taken] = Item{Pos: a.surplus[next]}
			next++
		}
	}
}

// scatter exchanges the samples of some places, chosen at random, among these places. Its randomness belongs to the
// batch's position, so that it is the same after a resume.
func (a *assignment) scatter(first int64) {
	e := a.deal.epoch
	r := perm.New(perm.Seed("plan/exchange", e.plan.seed, e.number, uint64(first)))
	slots := a.slots[:len(a.items)]
	for i := range slots {
		slots[i] = int32(i)
	}
	chosen := int(math.Round(a.exchange * float64(len(slots))))
	for i := range chosen {
		j := i + int(r.Below(uint64(len(slots)-i)))
		slots[i], slots[j] = slots[j], slots[i]
	}
	for i := chosen - 1; i > 0; i-- {
		j := r.Below(uint64(i) + 1)
		x, y := slots[i], slots[j]
		a.items[x], a.items[y] = a.items[y], a.items[x]
	}
}
