package plan

// Homes returns the home node of each partition in an epoch: partitions are dealt to the nodes in the order of their
// turns, each to the node that has the fewest for its ranks, so that every round asks all nodes alike. nodes[i] is how
// many ranks node i has. With equal nodes that is round-robin, and nodes beyond the partitions get none.
func (p *Plan) Homes(nodes []int, epoch uint64) []uint16 {
	homes := make([]uint16, p.partitions)
	owned := make([]uint64, len(nodes))
	for _, partition := range p.turns(epoch) {
		best := 0
		for n, ranks := range nodes {
			// Sainte-Laguë's rule: the largest ranks / (2*owned + 1), compared without fractions. For unequal nodes it
			// spreads the small ones' partitions evenly over the turns.
			if uint64(ranks)*(2*owned[best]+1) > uint64(nodes[best])*(2*owned[n]+1) {
				best = n
			}
		}
		owned[best]++
		homes[partition] = uint16(best)
	}
	return homes
}
