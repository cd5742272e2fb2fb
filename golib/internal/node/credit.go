package node

import (
	"math"

	"github.com/redox-loader/redox/golib/internal/plan"
)

// credit is how much of a run's memory is for other nodes' samples.
type credit struct {
	coming int   // incoming samples at once
	spare  int   // samples read by themselves ahead of being needed
	sample int64 // bytes of the largest
}

// leastCredit is what an exchange can work with, if slowly.
const leastCredit = 2

// mostCredit is what the fastest network needs.
const mostCredit = 1024

// goodCredit is how many bytes of incoming samples hide the delays of a network, where memory is no matter.
const goodCredit = 64 << 20

// bytes is the memory for all of them. Each goroutine that assembles has room for one sample more, read by itself.
func (c credit) bytes(cfg *RunConfig) int64 {
	if c.coming == 0 {
		return 0
	}
	return int64(c.coming+c.spare+cfg.workers()+1) * c.sample
}

func (r *Reader) credit(cfg *RunConfig, coming int) credit {
	if !cfg.exchanged() {
		return credit{}
	}
	return credit{coming, max(leastCredit, coming/4), r.largestStored(cfg.Plan)}
}

// wantedCredit is how many incoming samples a run can make use of: those of the batches on their way.
func (r *Reader) wantedCredit(cfg *RunConfig) int {
	if !cfg.exchanged() {
		return 0
	}
	batches := (cfg.Prefetch + 2) * crossing(cfg)
	return max(leastCredit, min(mostCredit, max(batches, int(min(mostCredit, goodCredit/max(1, r.largestStored(cfg.Plan)))))))
}

// crossing is how many samples of a rank's batch come from other nodes: few where samples stay at home, as far as the
// nodes have partitions enough; nearly all where they are exchanged at random.
func crossing(cfg *RunConfig) int {
	batch := cfg.World.BatchSize
	if x := cfg.World.Exchange; x.Mode == plan.Uniform || x.Fraction > 0 {
		return batch
	}
	homes := cfg.Plan.Homes(cfg.World.Nodes, 0)
	own := 0
	for _, home := range homes {
		if home == cfg.node() {
			own++
		}
	}
	share := float64(own) / float64(len(homes)) * float64(cfg.World.Ranks()) / float64(cfg.World.Nodes[cfg.node()])
	missing := int(math.Ceil(float64(batch) * max(0, 1-share)))
	return min(batch, missing+batch/16+8)
}

// largestStored bounds the size of a stored sample: its raw size, as what grows by compression is stored raw.
func (r *Reader) largestStored(p *plan.Plan) int64 {
	largest := uint64(0)
	for c := range r.index.Entries {
		if p.Count(plan.ChunkID(c)) > 0 {
			largest = max(largest, r.index.Entries[c].MaxRaw)
		}
	}
	return int64(largest)
}
