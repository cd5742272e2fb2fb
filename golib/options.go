package redox

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// planOptions are those that the order and its cutting into batches depend on.
type planOptions struct {
	BatchSize    int           `json:"batch_size"`
	Shuffle      *bool         `json:"shuffle"`
	ShuffleSeed  *uint64       `json:"shuffle_seed"`
	Seed         *uint64       `json:"seed"` // another name of shuffle_seed
	DropLast     bool          `json:"drop_last"`
	Pad          any           `json:"pad"`    // null, true: wrap; "mark"; false
	Subset       []json.Number `json:"subset"` // [lo, hi]: integers, or fractions if one of them has a point
	SubsetHandle *uint64       `json:"subset_handle"`
	Window       *int          `json:"window"`
	Partitions   *int          `json:"partitions"`
	Rank         *int          `json:"rank"`
	WorldSize    *int          `json:"world_size"`
	Nodes        any           `json:"nodes"`    // how many, or how many ranks each has
	Exchange     any           `json:"exchange"` // "local", "uniform", "off" or a fraction
	Keep         string        `json:"keep"`     // "epoch" or "run"
	Epoch        uint64        `json:"epoch"`
}

// loaderOptions are those of redox_loader_new.
type loaderOptions struct {
	planOptions
	Fields      []string `json:"fields"`
	MemoryLimit any      `json:"memory_limit"` // a size or "auto"
	IO          string   `json:"io"`
	Timeout     *float64 `json:"timeout"` // seconds
	OnError     string   `json:"on_error"`
	MaxSkipped  *int64   `json:"max_skipped"`
	Prefetch    int      `json:"prefetch"` // slots assembled ahead for redox_acquire
	Share       *uint64  `json:"share"`    // a loader whose engine this one runs on
	Mesh        *uint64  `json:"mesh"`     // connections to the other nodes; absent: those that the environment names
}

const (
	defaultTimeout    = 120 * time.Second
	defaultMaxSkipped = 1000
	maxBatchSize      = 1 << 24
	maxPrefetch       = 1024
)

// oneOf checks an option with a few words as values; "" means the first.
func oneOf(option, value string, words ...string) (string, error) {
	if value == "" {
		return words[0], nil
	}
	if !slices.Contains(words, value) {
		return "", fault.New(fault.Invalid, "%s=%q: expected one of %s", option, value, strings.Join(words, ", "))
	}
	return value, nil
}

func (o *planOptions) batchSize() (int, error) {
	if o.BatchSize < 1 || o.BatchSize > maxBatchSize {
		return 0, fault.New(fault.Invalid, "batch_size=%d: expected 1 to %d", o.BatchSize, maxBatchSize)
	}
	return o.BatchSize, nil
}

func (o *planOptions) seed() (uint64, error) {
	switch {
	case o.ShuffleSeed != nil && o.Seed != nil && *o.Seed != *o.ShuffleSeed:
		return 0, fault.New(fault.Invalid, "seed and shuffle_seed are one option: got %d and %d", *o.Seed, *o.ShuffleSeed)
	case o.ShuffleSeed != nil:
		return *o.ShuffleSeed, nil
	case o.Seed != nil:
		return *o.Seed, nil
	}
	return 0, nil
}

// positive reads an optional count; absent means 0, the default.
func positive(option string, value *int) (int, error) {
	if value == nil {
		return 0, nil
	}
	if *value < 1 {
		return 0, fault.New(fault.Invalid, "%s=%d: expected at least 1", option, *value)
	}
	return *value, nil
}

// bounds returns a subset given as [lo, hi] in stored numbers; ok is false if there is none.
func (o *planOptions) bounds(samples int64) (lo, hi int64, ok bool, err error) {
	if o.Subset == nil {
		return 0, 0, false, nil
	}
	if len(o.Subset) != 2 {
		return 0, 0, false, fault.New(fault.Invalid, "subset: expected [lo, hi], got %d numbers", len(o.Subset))
	}
	bad := func() error {
		return fault.New(fault.Invalid, "subset=[%s, %s]: expected fractions 0.0 <= lo < hi <= 1.0, or stored numbers 0 <= lo < hi <= %d",
			o.Subset[0], o.Subset[1], samples)
	}
	if strings.ContainsAny(o.Subset[0].String()+o.Subset[1].String(), ".eE") {
		from, err1 := o.Subset[0].Float64()
		to, err2 := o.Subset[1].Float64()
		if err1 != nil || err2 != nil || !(0 <= from && from < to && to <= 1) {
			return 0, 0, false, bad()
		}
		lo, hi = fraction(from, samples), fraction(to, samples)
		if lo == hi {
			return 0, 0, false, fault.New(fault.Invalid, "subset=[%s, %s] of %d samples is empty", o.Subset[0], o.Subset[1], samples)
		}
		return lo, hi, true, nil
	}
	lo, err1 := o.Subset[0].Int64()
	hi, err2 := o.Subset[1].Int64()
	if err1 != nil || err2 != nil || lo < 0 || lo >= hi || hi > samples {
		return 0, 0, false, bad()
	}
	return lo, hi, true, nil
}

// fraction cuts a data set; both sides of a cut round alike, so that subsets that meet leave nothing out.
func fraction(f float64, samples int64) int64 {
	return min(samples, int64(math.Round(f*float64(samples))))
}

func (o *loaderOptions) memoryLimit() (int64, error) {
	return sizeOf("memory_limit", o.MemoryLimit, 1)
}

func (o *loaderOptions) timeout() (time.Duration, error) {
	if o.Timeout == nil {
		return defaultTimeout, nil
	}
	if !(*o.Timeout > 0 && *o.Timeout <= 1e9) {
		return 0, fault.New(fault.Invalid, "timeout=%v: expected seconds above 0", *o.Timeout)
	}
	return time.Duration(*o.Timeout * float64(time.Second)), nil
}

func (o *loaderOptions) maxSkipped() (int64, error) {
	if o.MaxSkipped == nil {
		return defaultMaxSkipped, nil
	}
	if *o.MaxSkipped < 0 {
		return 0, fault.New(fault.Invalid, "max_skipped=%d: expected at least 0", *o.MaxSkipped)
	}
	return *o.MaxSkipped, nil
}

func (o *loaderOptions) prefetch() (int, error) {
	if o.Prefetch < 0 || o.Prefetch > maxPrefetch {
		return 0, fault.New(fault.Invalid, "prefetch=%d: expected 0 to %d", o.Prefetch, maxPrefetch)
	}
	return o.Prefetch, nil
}

// encode makes JSON of our own values, which always fit.
func encode(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return b, nil
}
