package plan

// Homes returns the home node of each partition in an epoch: partitions are dealt to the nodes in the order of their
// turns, each to the node that has the fewest for its ranks, so that every round asks all nodes alike. nodes[i] is how
// many ranks node i has. With equal nodes that is round-robin, and nodes beyond the partitions get none.
func (p *Plan) Homes(nodes []int, epoch uint64) []uint16 {
	homes := make([]uint16, p.partitions)
	owners := Owners(nodes, p.partitions)
	for i, partition := range p.turns(epoch) {
		homes[partition] = owners[i]
	}
	return homes
}

// Owners are the nodes that get partitions, in the order of the turns. Those of fewer partitions are a prefix.
func Owners(nodes []int, partitions int) []uint16 {
	owners := make([]uint16, partitions)
	owned := make([]uint64, len(nodes))
	for i := range owners {
		best := 0
		for n, ranks := range nodes {
			// Sainte-Laguë's rule: the largest ranks / (2*owned + 1), compared without fractions. For unequal nodes it
			// spreads the small ones' partitions evenly over the turns.
			if uint64(ranks)*(2*owned[best]+1) > uint64(nodes[best])*(2*owned[n]+1) {
				best = n
			}
		}
		owned[best]++
		owners[i] = uint16(best)
	}
	return owners
}

// Home returns the node that reads a chunk and gives its samples to the other nodes: the home of its partition, or in
// stored order the node that takes its first position. The chunk must be one that the epoch opens.
func (d *Deal) Home(c ChunkID) uint16 {
	e := d.epoch
	if e.plan.shuffle {
		return d.homes[e.Partition(c)]
	}
	return d.storedHome(max(e.before[c], d.from))
}

// storedHome returns the node that takes a position of the stored order: within a global batch the positions go to the
// ranks in blocks.
func (d *Deal) storedHome(position int64) uint16 {
	place := (position - d.from) % d.globalBatch()
	quota, extra := int64(d.world.BatchSize), int64(0)
	if position >= d.epoch.plan.size-d.rest() && !d.world.DropLast { // the last batch: see share
		last := d.rest() + d.padding()
		quota, extra = last/d.ranks, last%d.ranks
	}
	end := int64(0)
	for node, ranks := range d.world.Nodes {
		more := min(extra, int64(ranks))
		extra -= more
		if end += quota*int64(ranks) + more; place < end {
			return uint16(node)
		}
	}
	return uint16(len(d.world.Nodes) - 1)
}
