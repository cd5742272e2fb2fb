package redox

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/redox-loader/redox/golib/internal/plan"
)

// terms are what all nodes must agree in, with what helps to say in what they do not.
type terms struct {
	Release    string `json:"release"`
	Dataset    string `json:"dataset"`
	Shuffle    bool   `json:"shuffle"`
	Seed       uint64 `json:"seed"`
	Window     int    `json:"window"`
	Partitions int    `json:"partitions"`
	Keep       string `json:"keep"`
	Subset     string `json:"subset"`
	PlanHash   string `json:"plan_hash"`
	BatchSize  int    `json:"batch_size"`
	DropLast   bool   `json:"drop_last"`
	Pad        string `json:"pad"`
	Exchange   string `json:"exchange"`
	Ranks      []int  `json:"ranks"`
}

func (d *Dataset) terms(o *meshOptions, p *plan.Plan, cut plan.World) terms {
	t := terms{
		Release: version, Dataset: d.data.Manifest.Fingerprint, Shuffle: p.Shuffled(), Keep: "epoch", Subset: p.SubsetHash(),
		PlanHash: p.Hash(), BatchSize: cut.BatchSize, DropLast: cut.DropLast, Pad: fmt.Sprint(o.Pad),
		Exchange: fmt.Sprint(o.Exchange), Ranks: cut.Nodes,
	}
	if p.Sticky() {
		t.Keep = "run"
	}
	if p.Shuffled() {
		t.Seed, _ = o.seed() // newPlan has checked it
		t.Window, t.Partitions = p.Window(), p.Partitions()
	}
	if o.Pad == nil {
		t.Pad = "true"
	}
	if o.Exchange == nil {
		t.Exchange = "local"
	}
	return t
}

// hash is what the peers compare.
func (t *terms) hash() (sum [32]byte) {
	text, _ := json.Marshal(t) // numbers and strings
	return sha256.Sum256(text)
}

// differ says in what these terms are not the other's: "a=1 differs from a=2", or "".
func (t *terms) differ(o *terms) string {
	for _, c := range []struct {
		name        string
		mine, other any
	}{
		{"release", t.Release, o.Release}, {"data set", t.Dataset, o.Dataset}, {"shuffle", t.Shuffle, o.Shuffle},
		{"shuffle_seed", t.Seed, o.Seed}, {"keep", t.Keep, o.Keep}, {"window", t.Window, o.Window},
		{"partitions", t.Partitions, o.Partitions}, {"subset", quoted(t.Subset), quoted(o.Subset)}, {"plan", t.PlanHash, o.PlanHash},
		{"batch_size", t.BatchSize, o.BatchSize}, {"drop_last", t.DropLast, o.DropLast}, {"pad", t.Pad, o.Pad},
		{"exchange", t.Exchange, o.Exchange},
	} {
		if c.mine != c.other {
			return fmt.Sprintf("%s=%v here differs from %s=%v", c.name, c.mine, c.name, c.other)
		}
	}
	if !slices.Equal(t.Ranks, o.Ranks) {
		return fmt.Sprintf("ranks of each node %v here differ from %v", t.Ranks, o.Ranks)
	}
	return ""
}
