package redox

import (
	"encoding/json"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// stateVersion is that of the states this release writes; it reads all up to it.
const stateVersion = 1

// state is where training goes on: an epoch and one global position in it, with what the order depends on, so that it
// can't be restored onto another order.
type state struct {
	Version    int    `json:"version"`
	Dataset    string `json:"dataset"` // fingerprint
	Seed       uint64 `json:"seed"`
	Shuffle    bool   `json:"shuffle"`
	Epoch      uint64 `json:"epoch"`
	Position   int64  `json:"position"` // samples of the epoch that all ranks together have got
	Partitions int    `json:"partitions"`
	Window     int    `json:"window"`
	Subset     string `json:"subset"` // hash, "" for all
	Keep       string `json:"keep"`
	PlanHash   string `json:"plan_hash"`
}

// state describes a position of this loader's plan.
func (l *Loader) state(epoch uint64, position int64) state {
	s := state{
		Version: stateVersion, Dataset: l.data.data.Manifest.Fingerprint, Seed: l.seed, Shuffle: l.plan.Shuffled(),
		Epoch: epoch, Position: position, Partitions: l.plan.Partitions(), Window: l.plan.Window(),
		Subset: l.plan.SubsetHash(), Keep: "epoch", PlanHash: l.plan.Hash(),
	}
	if l.plan.Sticky() {
		s.Keep = "run"
	}
	return s
}

// StateJSON is the state after the batches delivered so far.
func (l *Loader) StateJSON() ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	position := l.start
	switch {
	case l.ended:
		position = l.plan.Size()
	case l.running:
		position = l.run.Position()
	}
	return encode(l.state(l.epoch, position))
}

// Restore makes the next batch the one after a state, of this data set and plan, whatever the world it was taken in.
func (l *Loader) Restore(stateJSON []byte) error {
	var s state
	if err := json.Unmarshal(stateJSON, &s); err != nil {
		return fault.New(fault.State, "not a state: %v", err)
	}
	if err := l.fits(&s); err != nil {
		return err
	}
	l.turn.Lock()
	defer l.turn.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epoch, l.start = s.Epoch, s.Position
	// An epoch that is over is followed by the next.
	l.running, l.ended, l.fresh = false, s.Position == l.plan.Size(), true
	return nil
}

// fits says in which way a state is not one of this loader's order.
func (l *Loader) fits(s *state) error {
	mine := l.state(s.Epoch, s.Position)
	differs := func(what string, got, want any) error {
		return fault.New(fault.State, "the state has %s %v, this loader %v", what, got, want)
	}
	switch {
	case s.Version < 1:
		return fault.New(fault.State, "not a state: it has no version")
	case s.Version > stateVersion:
		return fault.New(fault.State, "the state is of version %d, this release knows versions up to %d", s.Version, stateVersion)
	case s.Dataset != mine.Dataset:
		return differs("data set", s.Dataset, mine.Dataset)
	case s.Shuffle != mine.Shuffle:
		return differs("shuffle", s.Shuffle, mine.Shuffle)
	case s.Shuffle && s.Seed != mine.Seed:
		return differs("shuffle_seed", s.Seed, mine.Seed)
	case s.Shuffle && s.Window != mine.Window:
		return differs("window", s.Window, mine.Window)
	case s.Shuffle && s.Partitions != mine.Partitions:
		return differs("partitions", s.Partitions, mine.Partitions)
	case s.Shuffle && s.Keep != mine.Keep:
		return differs("keep", s.Keep, mine.Keep)
	case s.Subset != mine.Subset:
		return differs("subset", quoted(s.Subset), quoted(mine.Subset))
	case s.PlanHash != mine.PlanHash:
		return differs("plan", s.PlanHash, mine.PlanHash)
	case s.Position < 0 || s.Position > l.plan.Size():
		return fault.New(fault.State, "the state is at position %d of an epoch that has %d samples", s.Position, l.plan.Size())
	}
	return nil
}

func quoted(subset string) string {
	if subset == "" {
		return "(everything)"
	}
	return subset
}
