package redox_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	redox "github.com/redox-loader/redox/golib"
	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/pack/packtest"
)

const (
	samples = 307 // a prime, so that no batch size divides it
	size    = 100 // bytes of a sample: about ten in a chunk
)

// open packs a data set of numbered samples and opens it.
func open(t *testing.T) *redox.Dataset {
	t.Helper()
	dir := t.TempDir() + "/d"
	packtest.Build(t, dir, packtest.Schema(t, "data", "bytes", "label", "int"), packtest.Numbered(samples, size, 7)...)
	d, err := redox.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func loader(t *testing.T, d *redox.Dataset, options string, args ...any) *redox.Loader {
	t.Helper()
	l, err := d.NewLoader(fmt.Appendf(nil, options, args...), redox.Resolver{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// buffers is a batch with room for n samples.
func buffers(n int) *redox.Batch {
	return &redox.Batch{CapSamples: n, Index: make([]int64, n), Fields: []redox.Column{
		{Data: make([]byte, n*size), Offsets: make([]uint64, n+1)},
		{Data: make([]byte, 8*n)},
	}}
}

// next returns the stored numbers of the next batch after checking its data against them; nil at the end of the epoch.
func next(t *testing.T, l *redox.Loader, b *redox.Batch) []int64 {
	t.Helper()
	err := l.NextBatch(b, 10*time.Second)
	if errors.Is(err, fault.Of(fault.EndOfEpoch)) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	want := packtest.Numbered(samples, size, 7)
	for i, n := range b.Index[:b.N] {
		got := b.Fields[0].Data[b.Fields[0].Offsets[i]:b.Fields[0].Offsets[i+1]]
		if !bytes.Equal(got, want[n].Vals[0].Data) {
			t.Fatalf("sample %d has another one's data", n)
		}
		if label := binary.LittleEndian.Uint64(b.Fields[1].Data[8*i:]); label != uint64(n)%7 {
			t.Fatalf("sample %d has label %d", n, label)
		}
	}
	return slices.Clone(b.Index[:b.N])
}

// rest returns all that is left of the epoch.
func rest(t *testing.T, l *redox.Loader, b *redox.Batch) (order []int64) {
	t.Helper()
	for batch := next(t, l, b); batch != nil; batch = next(t, l, b) {
		order = append(order, batch...)
	}
	return order
}

func isPermutation(order []int64, n int) bool {
	sorted := slices.Sorted(slices.Values(order))
	for i, v := range sorted {
		if v != int64(i) {
			return false
		}
	}
	return len(sorted) == n
}

func TestEpochsFollowEachOther(t *testing.T) {
	l, b := loader(t, open(t), `{"batch_size": 16}`), buffers(16)
	first, second := rest(t, l, b), rest(t, l, b)
	if !isPermutation(first, samples) || !isPermutation(second, samples) || slices.Equal(first, second) {
		t.Error("two epochs must be two orders of all samples")
	}
	if err := l.SetEpoch(0); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(rest(t, l, b), first) {
		t.Error("epoch 0 is not what it was")
	}
}

// A state saved after every step, restored into a loader with another batch size, gives exactly the rest.
func TestRestoreAtEveryStep(t *testing.T) {
	d := open(t)
	whole := rest(t, loader(t, d, `{"batch_size": 16}`), buffers(16))
	after := rest(t, loader(t, d, `{"batch_size": 16, "epoch": 1}`), buffers(16))
	l, b := loader(t, d, `{"batch_size": 16}`), buffers(16)
	other, small := loader(t, d, `{"batch_size": 5}`), buffers(5)
	for done := 0; done < samples; {
		state, err := l.StateJSON()
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Restore(state); err != nil {
			t.Fatal(err)
		}
		if got := rest(t, other, small); !slices.Equal(got, whole[done:]) {
			t.Fatalf("after %d samples: %d left, not those of the epoch", done, len(got))
		}
		done += len(next(t, l, b))
	}
	state, err := l.StateJSON()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Restore(state); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(rest(t, other, small), after) {
		t.Error("a state at the end of an epoch goes on with the next one")
	}
	if err := other.Restore(state); err != nil {
		t.Fatal(err)
	}
	if err := other.SetEpoch(0); err != nil {
		t.Fatal(err)
	}
	if got := rest(t, other, small); len(got) != 0 {
		t.Errorf("setting the epoch of a state at its end repeats %d samples", len(got))
	}
}

func TestStatesOfOtherOrdersAreRefused(t *testing.T) {
	d := open(t)
	l := loader(t, d, `{"batch_size": 16}`)
	good, err := l.StateJSON()
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]any{
		"version": 2, "dataset": "0", "shuffle": false, "seed": 1, "window": 3, "partitions": 2, "subset": "00", "keep": "run",
		"plan_hash": "00", "position": samples + 1,
	} {
		var s map[string]any
		if err := json.Unmarshal(good, &s); err != nil {
			t.Fatal(err)
		}
		s[name] = change
		bad, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Restore(bad); !errors.Is(err, fault.Of(fault.State)) {
			t.Errorf("%s changed: %v", name, err)
		}
	}
	for _, bad := range []string{"", "[]", "{}", "null", `{"version": 0}`} {
		if err := l.Restore([]byte(bad)); !errors.Is(err, fault.Of(fault.State)) {
			t.Errorf("state %q: %v", bad, err)
		}
	}
}

// The plan alone tells what every rank gets.
func TestPlanIndicesAreWhatRanksGet(t *testing.T) {
	d := open(t)
	for _, pad := range []string{`null`, `"mark"`, `false`} {
		for rank := range 3 {
			world := fmt.Sprintf(`"batch_size": 8, "rank": %d, "world_size": 3, "nodes": 3, "exchange": "off", "pad": %s`, rank, pad)
			l, b := loader(t, d, `{%s}`, world), buffers(8)
			for step := uint64(0); ; step++ {
				indices, err := d.PlanIndices([]byte("{"+world+"}"), step, redox.Resolver{})
				if err != nil {
					break
				}
				var want []int64
				for _, n := range indices[8*rank : 8*rank+8] {
					if n != redox.Absent {
						want = append(want, n)
					}
				}
				if len(want) == 0 {
					continue
				}
				if got := nextMarked(t, l, b); !slices.Equal(got, want) {
					t.Fatalf("pad %s, rank %d, step %d: got %v, planned %v", pad, rank, step, got, want)
				}
			}
			if got := nextMarked(t, l, b); got != nil {
				t.Errorf("pad %s, rank %d: more than planned: %v", pad, rank, got)
			}
		}
	}
}

// nextMarked is next for batches with marked padding.
func nextMarked(t *testing.T, l *redox.Loader, b *redox.Batch) []int64 {
	t.Helper()
	err := l.NextBatch(b, 10*time.Second)
	if errors.Is(err, fault.Of(fault.EndOfEpoch)) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(b.Index[:b.N])
}

func TestTooSmallBuffersConsumeNothing(t *testing.T) {
	d := open(t)
	want := rest(t, loader(t, d, `{"batch_size": 16}`), buffers(16))
	l := loader(t, d, `{"batch_size": 16}`)
	small := buffers(16)
	small.Fields[0].Data = small.Fields[0].Data[:10]
	if err := l.NextBatch(small, time.Second); !errors.Is(err, fault.Of(fault.Range)) || small.Fields[0].Need != 16*size || small.Fields[1].Need != 16*8 {
		t.Fatalf("%v, needs %d and %d", err, small.Fields[0].Need, small.Fields[1].Need)
	}
	if !slices.Equal(rest(t, l, buffers(16)), want) {
		t.Error("something was consumed")
	}
}

// Lent batches stay as they are when everything else is gone.
func TestSlotsOutliveTheLoader(t *testing.T) {
	d := open(t)
	want := rest(t, loader(t, d, `{"batch_size": 16}`), buffers(16))
	l := loader(t, d, `{"batch_size": 16, "prefetch": 2}`)
	var slots []*redox.Slot
	var lent []*redox.Batch
	for range 3 {
		b := &redox.Batch{Fields: make([]redox.Column, 2)}
		s, err := l.Acquire(b, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		slots = append(slots, s)
		lent = append(lent, b)
	}
	b := &redox.Batch{Fields: make([]redox.Column, 2)}
	if _, err := l.Acquire(b, time.Second); !errors.Is(err, fault.Of(fault.Range)) || b.Fields[0].Need != 16*size {
		t.Fatalf("a fourth slot of three: %v", err)
	}
	own := buffers(16)
	if index := next(t, l, own); !slices.Equal(index, want[48:64]) {
		t.Error("the caller's own memory must still work, with the batch after those lent")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for i, s := range slots {
		if !slices.Equal(lent[i].Index, want[16*i:16*i+16]) {
			t.Errorf("slot %d changed when the loader was closed", i)
		}
		s.Release()
	}
}

func TestOptionsSayWhatTheyAccept(t *testing.T) {
	d := open(t)
	for _, o := range []string{
		`{}`, `{"batch_size": 0}`, `{"batch_size": -1}`, `{"batch_size": "x"}`, `{"batch_size": 1.5}`, `{"batch": 1}`, `[]`, `{`,
		`{"batch_size": 1, "window": 0}`, `{"batch_size": 1, "partitions": -1}`, `{"batch_size": 1, "pad": "yes"}`,
		`{"batch_size": 1, "subset": [0]}`, `{"batch_size": 1, "subset": [0.5, 0.5]}`, `{"batch_size": 1, "subset": [0, 308]}`,
		`{"batch_size": 1, "subset": [5, 5]}`, `{"batch_size": 1, "exchange": 2}`, `{"batch_size": 1, "exchange": "x"}`,
		`{"batch_size": 1, "io": "fast"}`, `{"batch_size": 1, "keep": "x"}`, `{"batch_size": 1, "memory_limit": "1 gigabyte"}`,
		`{"batch_size": 1, "memory_limit": 0}`, `{"batch_size": 1, "timeout": 0}`, `{"batch_size": 1, "on_error": "x"}`,
		`{"batch_size": 1, "fields": ["nope"]}`, `{"batch_size": 1, "fields": []}`, `{"batch_size": 1, "fields": ["label", "label"]}`,
		`{"batch_size": 1, "rank": 1}`, `{"batch_size": 1, "world_size": 2}`, `{"batch_size": 1, "rank": 2, "world_size": 2}`,
		`{"batch_size": 1, "rank": 0, "world_size": 2, "nodes": 3}`, `{"batch_size": 1, "prefetch": -1}`, `{"batch_size": 1, "seed": 1, "shuffle_seed": 2}`,
	} {
		if l, err := d.NewLoader([]byte(o), redox.Resolver{}); !errors.Is(err, fault.Of(fault.Invalid)) {
			t.Errorf("%s: %v", o, err)
			if err == nil {
				l.Close()
			}
		}
	}
}

func TestMemoryLimitNamesWhatWorks(t *testing.T) {
	d := open(t)
	_, err := d.NewLoader([]byte(`{"batch_size": 4, "memory_limit": 20000}`), redox.Resolver{})
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != fault.Memory || f.Given != 20000 || f.Needed <= f.Given || f.Window < 1 {
		t.Fatalf("%+v", err)
	}
	loader(t, d, `{"batch_size": 4, "memory_limit": %d}`, f.Needed).Close()
	loader(t, d, `{"batch_size": 4, "memory_limit": 20000, "window": %d}`, f.Window).Close()
	if l, err := d.NewLoader(fmt.Appendf(nil, `{"batch_size": 4, "memory_limit": %d}`, f.Needed-1), redox.Resolver{}); err == nil {
		l.Close()
		t.Error("less than the smallest limit worked")
	}
	if l, err := d.NewLoader(fmt.Appendf(nil, `{"batch_size": 4, "memory_limit": 20000, "window": %d}`, f.Window+1), redox.Resolver{}); err == nil {
		l.Close()
		t.Error("more than the largest window worked")
	}
}
