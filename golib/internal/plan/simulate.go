package plan

import (
	"math"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// SimWorld is a world to be simulated.
type SimWorld struct {
	World
	Epoch uint64
	Rho   float64 // correlation of the labels inside a chunk, 0 to 1; from the data set's manifest
}

// Report says how an epoch will go, from the plan alone.
type Report struct {
	Samples     int64 `json:"samples"`
	Batches     int64 `json:"batches"`      // global ones
	GlobalBatch int64 `json:"global_batch"` // positions
	Padded      int64 `json:"padded"`
	Window      int   `json:"window"`
	Partitions  int   `json:"partitions"`

	Reads           int64   `json:"reads"`             // chunks, of all nodes together; each once
	NodeReads       []int64 `json:"node_reads"`        // of each node
	NodeWindow      []int   `json:"node_window"`       // chunks that each node has open at most
	FirstBatchLoads int     `json:"first_batch_loads"` // chunks that the first global batch waits for, on all nodes

	VIF          float64 `json:"vif"`           // of the labels, over the simulated batches
	VIFMiddle    float64 `json:"vif_middle"`    // the same, without the first and last quarter of them
	VIFPredicted float64 `json:"vif_predicted"` // by formula, without ramp and tail
	VIFWorst     float64 `json:"vif_worst"`     // of the chunks: what VIF were with a label of its own in each

	Crossing           float64 `json:"crossing"`            // share of samples that another node's rank gets
	CrossingStructural float64 `json:"crossing_structural"` // its lower bound: partitions that the nodes can't share equally
	CrossingRandom     float64 `json:"crossing_random"`     // what it would be if samples had homes at random (Yang and Cong)
	CrossingUniform    float64 `json:"crossing_uniform"`    // what it would be with exchange "uniform"

	Simulated int64 `json:"simulated"` // positions that VIF and Crossing were measured on, from the epoch's beginning
}

// maxSimulated bounds the time of a simulation to some tenths of a second. Beyond it the ramp weighs too much in the
// mean, never too little.
const maxSimulated = 1 << 23

// Simulate runs an epoch without data.
func (p *Plan) Simulate(w SimWorld) (Report, error) {
	if !(w.Rho >= 0 && w.Rho <= 1) {
		return Report{}, fault.New(fault.Invalid, "rho is %v: it must be 0 to 1", w.Rho)
	}
	e := p.Epoch(w.Epoch)
	d, err := e.Deal(w.World, 0)
	if err != nil {
		return Report{}, err
	}
	r := Report{
		Samples:     p.size,
		Batches:     d.Batches(),
		GlobalBatch: d.globalBatch(),
		Padded:      d.padding(),
		Window:      p.window,
		Partitions:  p.partitions,
		Reads:       int64(p.chunks),
	}
	r.countHomes(d)
	r.countLoads(e)
	r.predict(p, w)
	r.measure(d, w.Rho)
	return r, nil
}

// countHomes counts what each node reads, and how many virtual chunks it has.
func (r *Report) countHomes(d *Deal) {
	e := d.epoch
	r.NodeReads = make([]int64, len(d.world.Nodes))
	r.NodeWindow = make([]int, len(d.world.Nodes))
	for _, c := range e.queue {
		r.NodeReads[d.Home(c)]++
	}
	if !e.plan.shuffle {
		for n, reads := range r.NodeReads {
			r.NodeWindow[n] = int(min(1, reads))
		}
		return
	}
	for j, q := range e.parts {
		r.NodeWindow[d.homes[q.partition]] += e.plan.slots(j)
	}
}

// countLoads counts the chunks that are needed before the first global batch is complete.
func (r *Report) countLoads(e *Epoch) {
	o := e.Opens(0)
	for {
		open, ok := o.Next()
		if !ok || open.Position >= r.GlobalBatch {
			return
		}
		r.FirstBatchLoads++
	}
}

// predict fills in what has a closed form.
func (r *Report) predict(p *Plan, w SimWorld) {
	r.VIFPredicted = PredictVIF(w.Rho, int(r.GlobalBatch), p.window, p.chunks)
	nodes, s := float64(len(w.Nodes)), float64(p.partitions)
	r.CrossingUniform = (nodes - 1) / nodes
	r.CrossingRandom = math.Sqrt(r.CrossingUniform / (2 * math.Pi * float64(r.GlobalBatch) / nodes))
	over := math.Mod(s, nodes) // nodes that have a partition more than the others
	r.CrossingStructural = over * (math.Ceil(s/nodes)/s - 1/nodes)
}

// measure runs the global batches.
func (r *Report) measure(d *Deal, rho float64) {
	e := d.epoch
	all := newMeter(e.plan.counts, e.plan.size)
	middle := newMeter(e.plan.counts, e.plan.size)
	full := min(e.plan.size, maxSimulated) / r.GlobalBatch
	crossed := int64(0)
	for i := int64(0); r.Simulated < maxSimulated; i++ {
		b, ok := d.Next()
		if !ok {
			break
		}
		r.Simulated += int64(len(b.Picks) - b.Padded)
		crossed += d.crossing(b)
		if i >= full {
			continue // the last batch, which has another size
		}
		for _, k := range b.Picks {
			all.note(uint32(k.Chunk))
		}
		all.end()
		if i >= full/4 && i < full-full/4 {
			for _, k := range b.Picks {
				middle.note(uint32(k.Chunk))
			}
			middle.end()
		}
	}
	if r.Simulated > 0 {
		r.Crossing = float64(crossed) / float64(r.Simulated)
	}
	r.VIFWorst = all.vif()
	r.VIF = ofLabels(r.VIFWorst, rho)
	r.VIFMiddle = ofLabels(middle.vif(), rho)
}

// ofLabels returns the VIF of labels whose correlation inside the chunks is rho, given that of the chunks themselves.
func ofLabels(chunks, rho float64) float64 { return 1 + rho*(chunks-1) }

// crossing counts the samples of a batch that go to another node than their home.
func (d *Deal) crossing(b *GlobalBatch) (n int64) {
	if len(d.world.Nodes) == 1 {
		return 0
	}
	rank := 0
	for node, ranks := range d.world.Nodes {
		for range ranks {
			for _, item := range b.Ranks[rank] {
				if !item.Pad && d.Home(b.Picks[item.Pos].Chunk) != uint16(node) {
					n++
				}
			}
			rank++
		}
	}
	return n
}
