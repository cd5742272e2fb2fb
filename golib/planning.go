package redox

import (
	"math"

	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/node"
	"github.com/redox-loader/redox/golib/internal/plan"
	"github.com/redox-loader/redox/golib/internal/store"
)

// Absent stands in PlanIndices where a rank gets no sample.
const Absent = math.MinInt64

// Resolver finds what the handles inside a loader's options mean.
type Resolver struct {
	Subset func(handle uint64) (*Subset, bool)
	Loader func(handle uint64) (*Loader, bool)
	Mesh   func(handle uint64) (*Mesh, bool)
}

// referred returns what a handle among the options stands for. 0 is none, whoever resolves it.
func referred[T any](option string, handle uint64, what string, find func(uint64) (T, bool)) (v T, err error) {
	if handle != 0 && find == nil {
		return v, fault.New(fault.Invalid, "%s can't be used here", option)
	}
	ok := false
	if handle != 0 {
		v, ok = find(handle)
	}
	if !ok {
		return v, fault.New(fault.BadHandle, "%s=%d is not an open %s", option, handle, what)
	}
	return v, nil
}

// handles looks at those that play no part where a plan is only asked about, so that a made-up one is noticed all the same.
func (o *loaderOptions) handles(resolve Resolver) error {
	if o.Share != nil {
		if _, err := referred("share", *o.Share, "loader", resolve.Loader); err != nil {
			return err
		}
	}
	if o.Mesh != nil {
		if _, err := referred("mesh", *o.Mesh, "mesh", resolve.Mesh); err != nil {
			return err
		}
	}
	return nil
}

// newPlan makes the plan that options mean.
func (d *Dataset) newPlan(o *planOptions, resolve Resolver) (*plan.Plan, error) {
	spec := plan.Spec{Samples: d.samples, Shuffle: o.Shuffle == nil || *o.Shuffle, Dataset: d.data.Manifest.Fingerprint}
	var err error
	if spec.Seed, err = o.seed(); err != nil {
		return nil, err
	}
	if spec.Window, err = positive("window", o.Window); err != nil {
		return nil, err
	}
	if spec.Partitions, err = positive("partitions", o.Partitions); err != nil {
		return nil, err
	}
	keep, err := oneOf("keep", o.Keep, "epoch", "run")
	if err != nil {
		return nil, err
	}
	spec.Sticky = keep == "run"
	if spec.Subset, err = d.subset(o, resolve); err != nil {
		return nil, err
	}
	return plan.New(spec)
}

// subset returns what a subset option means, nil for the whole data set.
func (d *Dataset) subset(o *planOptions, resolve Resolver) (plan.Subset, error) {
	lo, hi, given, err := o.bounds(int64(d.data.Manifest.Samples))
	if err != nil {
		return nil, err
	}
	switch {
	case given && o.SubsetHandle != nil:
		return nil, fault.New(fault.Invalid, "subset and subset_handle: expected one of them")
	case given:
		return plan.RangeSubset(d.samples, lo, hi), nil
	case o.SubsetHandle == nil:
		return nil, nil
	}
	s, err := referred("subset_handle", *o.SubsetHandle, "subset", resolve.Subset)
	if err != nil {
		return nil, err
	}
	if s.dataset.data.Manifest.Fingerprint != d.data.Manifest.Fingerprint {
		return nil, fault.New(fault.Invalid, "subset_handle=%d is of another data set", *o.SubsetHandle)
	}
	return s.subset, nil
}

// planWorld reads the options that cut the order into batches.
func (o *planOptions) planWorld() (plan.World, world, error) {
	w, err := o.world()
	if err != nil {
		return plan.World{}, w, err
	}
	out := plan.World{Nodes: w.ranks, DropLast: o.DropLast}
	if out.BatchSize, err = o.batchSize(); err != nil {
		return out, w, err
	}
	if out.Pad, err = o.padding(); err != nil {
		return out, w, err
	}
	out.Exchange, err = o.exchange()
	return out, w, err
}

func (o *planOptions) padding() (plan.Pad, error) {
	switch o.Pad {
	case nil, true:
		return plan.PadWrap, nil
	case false:
		return plan.PadNone, nil
	case "mark":
		return plan.PadMark, nil
	}
	return 0, fault.New(fault.Invalid, `pad=%v: expected null, true, false or "mark"`, o.Pad)
}

func (o *planOptions) exchange() (plan.Exchange, error) {
	switch v := o.Exchange.(type) {
	case nil:
		return plan.Exchange{}, nil
	case float64:
		if v >= 0 && v <= 1 {
			return plan.Exchange{Fraction: v}, nil
		}
	case string:
		switch v {
		case "local":
			return plan.Exchange{}, nil
		case "uniform":
			return plan.Exchange{Mode: plan.Uniform}, nil
		case "off":
			return plan.Exchange{Mode: plan.Off}, nil
		}
	}
	return plan.Exchange{}, fault.New(fault.Invalid, `exchange=%v: expected "local", "uniform", "off" or a fraction from 0 to 1`, o.Exchange)
}

// planRequest is a plan with what cuts it, for questions about batches.
type planRequest struct {
	planOptions
	PlanHash string `json:"plan_hash"` // of a state, to be compared
	Position int64  `json:"position"`  // where the batches begin to count, of a state
}

// anyRank fills in a rank where all of them are asked about.
func (o *planOptions) anyRank() {
	if o.WorldSize != nil && o.Rank == nil {
		o.Rank = new(int)
	}
}

// PlanIndices returns the stored numbers of global batch step of an epoch, from the plan alone: world_size x
// batch_size entries, rank by rank, Absent where a rank gets nothing, -1-i for padding under pad="mark".
func (d *Dataset) PlanIndices(optionsJSON []byte, step uint64, resolve Resolver) ([]int64, error) {
	var o planRequest
	if err := decode(optionsJSON, &o); err != nil {
		return nil, err
	}
	o.anyRank()
	p, err := d.newPlan(&o.planOptions, resolve)
	if err != nil {
		return nil, err
	}
	if o.PlanHash != "" && o.PlanHash != p.Hash() {
		return nil, fault.New(fault.State, "the state is of plan %.16s…, this data set with these options has %.16s…", o.PlanHash, p.Hash())
	}
	w, _, err := o.planWorld()
	if err != nil {
		return nil, err
	}
	deal, err := p.Epoch(o.Epoch).Deal(w, o.Position)
	if err != nil {
		return nil, err
	}
	if step >= uint64(deal.Batches()) {
		return nil, fault.New(fault.Invalid, "step=%d: the epoch has %d global batches", step, deal.Batches())
	}
	deal.Skip(int64(step))
	b, _ := deal.Next()
	out := make([]int64, len(b.Ranks)*w.BatchSize)
	for i := range out {
		out[i] = Absent
	}
	for r, items := range b.Ranks {
		for i, item := range items {
			pick := b.Picks[item.Pos]
			n := p.Number(pick.Chunk, pick.Sample)
			if item.Pad && w.Pad == plan.PadMark {
				n = -1 - n
			}
			out[r*w.BatchSize+i] = n
		}
	}
	return out, nil
}

// report is what redox_simulate tells: the plan's own report with what memory and storage it means.
type report struct {
	plan.Report
	ReadBytes    int64   `json:"read_bytes"`    // of an epoch, over all nodes
	Rho          float64 `json:"rho"`           // label correlation inside chunks that the score was computed with
	RhoKnown     bool    `json:"rho_known"`     // from the data set; else 0 if it was shuffled when packed, 1 if not
	MemoryNeeded int64   `json:"memory_needed"` // smallest memory_limit of a node for this configuration
	MemoryAuto   int64   `json:"memory_auto"`   // what "auto" takes
	MemoryGiven  int64   `json:"memory_given"`  // 0: auto
	Fits         bool    `json:"fits"`
}

// Simulate says what an epoch would cost and how well it would be mixed, from plan and index alone.
func (d *Dataset) Simulate(optionsJSON []byte, resolve Resolver) ([]byte, error) {
	var o loaderOptions
	if err := decode(optionsJSON, &o); err != nil {
		return nil, err
	}
	if err := o.handles(resolve); err != nil {
		return nil, err
	}
	o.anyRank()
	p, err := d.newPlan(&o.planOptions, resolve)
	if err != nil {
		return nil, err
	}
	cfg, err := d.runConfig(&o, p)
	if err != nil {
		return nil, err
	}
	var out report
	out.Rho, out.RhoKnown = d.rho()
	if out.Report, err = p.Simulate(plan.SimWorld{World: cfg.World, Epoch: o.Epoch, Rho: out.Rho}); err != nil {
		return nil, err
	}
	return d.costs(&o, cfg, &out)
}

// rho is the label correlation inside chunks. Without labels a data set that was shuffled when packed is taken to have
// none, another one the worst.
func (d *Dataset) rho() (rho float64, known bool) {
	m := &d.data.Manifest
	switch {
	case m.Rho != nil:
		return min(1, max(0, *m.Rho)), true
	case m.Shuffled:
		return 0, false
	}
	return 1, false
}

// costs adds bytes and memory to a report.
func (d *Dataset) costs(o *loaderOptions, cfg node.RunConfig, out *report) ([]byte, error) {
	for c := range d.data.Index.Entries {
		if cfg.Plan.Count(plan.ChunkID(c)) > 0 {
			e := &d.data.Index.Entries[c]
			out.ReadBytes += int64(e.Padded() - e.Offset)
		}
	}
	reader, err := d.singles()
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	if out.MemoryNeeded, out.MemoryAuto, err = reader.Needed(cfg); err != nil {
		return nil, err
	}
	if nodes := len(cfg.World.Nodes); exchanges(cfg.Plan, cfg.World) {
		out.MemoryNeeded += meshMemory(nodes, out.MemoryNeeded)
		out.MemoryAuto += meshMemory(nodes, 0)
	}
	if out.MemoryGiven, err = o.memoryLimit(); err != nil {
		return nil, err
	}
	given := out.MemoryGiven
	if given == 0 {
		given = store.FreeMemory() / 2
	}
	out.Fits = out.MemoryNeeded <= given
	return encode(out)
}
