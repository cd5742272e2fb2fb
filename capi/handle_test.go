package main

import (
	"os"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	redox "github.com/redox-loader/redox/golib"
)

func mustAdd[T any](t *testing.T, tab *table[T], v T) uint64 {
	t.Helper()
	h, ok := tab.add(v)
	if !ok || h == 0 {
		t.Fatalf("add gave %#x, %v", h, ok)
	}
	return h
}

func TestHandleIsStaleAfterTake(t *testing.T) {
	tab := newTable[string](3)
	a := mustAdd(t, tab, "a")
	if v, ok := tab.take(a, nil); !ok || v != "a" {
		t.Fatalf("take gave %q, %v", v, ok)
	}
	b := mustAdd(t, tab, "b") // in the same place
	if a == b {
		t.Fatal("a handle was given out twice")
	}
	if _, ok := tab.get(a); ok {
		t.Error("a closed handle reached the value that took its place")
	}
	if _, ok := tab.take(a, nil); ok {
		t.Error("a handle was closed twice")
	}
	if v, ok := tab.get(b); !ok || v != "b" {
		t.Errorf("get gave %q, %v", v, ok)
	}
}

func TestHandleOfAnotherKindIsUnknown(t *testing.T) {
	datasets, loaders := newTable[int](1), newTable[int](2)
	h := mustAdd(t, datasets, 7)
	mustAdd(t, loaders, 8)
	for _, wrong := range []uint64{0, 1, h + 1, h + 1<<indexBits, ^uint64(0)} {
		if _, ok := datasets.get(wrong); ok {
			t.Errorf("%#x was found", wrong)
		}
	}
	if _, ok := loaders.get(h); ok {
		t.Error("a data set's handle was taken for a loader's")
	}
}

func TestGenerationWraps(t *testing.T) {
	tab := newTable[int](15)
	h := mustAdd(t, tab, 1)
	tab.take(h, nil)
	tab.entries[0].generation = generationMask
	h = mustAdd(t, tab, 2)
	if v, ok := tab.get(h); !ok || v != 2 || h>>(indexBits+generationBits) != 15 {
		t.Errorf("after the last generation: %#x gives %d, %v", h, v, ok)
	}
}

func TestTableHasAnEnd(t *testing.T) {
	tab := newTable[struct{}](1)
	tab.entries = make([]*entry[struct{}], maxIndex+1)
	if h, ok := tab.add(struct{}{}); ok {
		t.Errorf("a full table gave %#x", h)
	}
}

// A call that is under way when its handle is closed ends before the value is closed, because it is woken; calls that
// come later don't get in.
func TestTakeWaitsForCallsInFlight(t *testing.T) {
	tab := newTable[chan struct{}](1)
	woken := make(chan struct{}, 1)
	h := mustAdd(t, tab, woken)
	var inside atomic.Bool
	entered := make(chan struct{})
	go func() {
		v, ok := tab.get(h)
		if !ok {
			t.Error("get")
			return
		}
		inside.Store(true)
		close(entered)
		// It begins to wait long after the first wake, as a call may.
		time.Sleep(5 * wakeEvery)
		for len(v) > 0 {
			<-v
		}
		<-v
		inside.Store(false)
		tab.put(h)
	}()
	<-entered
	_, ok := tab.take(h, func(v chan struct{}) {
		select {
		case v <- struct{}{}:
		default:
		}
	})
	if !ok || inside.Load() {
		t.Errorf("take returned %v, a call inside: %v", ok, inside.Load())
	}
}

// A call that never returns is left behind; its place is not used again before it does.
func TestTakeWithinLeavesHungCallsBehind(t *testing.T) {
	tab := newTable[int](1)
	h := mustAdd(t, tab, 7)
	tab.get(h)
	if v, ok := tab.takeWithin(h, nil, 20*time.Millisecond); !ok || v != 7 {
		t.Errorf("got %d, %v", v, ok)
	}
	if _, ok := tab.get(h); ok {
		t.Error("the handle is still good")
	}
	mustAdd(t, tab, 8)
	if len(tab.entries) != 2 {
		t.Errorf("%d places: that of the hung call was used again", len(tab.entries))
	}
	tab.put(h)
	for i := 0; ; i++ {
		tab.mu.Lock()
		free := len(tab.free)
		tab.mu.Unlock()
		if free == 1 {
			break
		}
		if i == 1000 {
			t.Fatal("the place is lost")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestOneOfManyTakersWins(t *testing.T) {
	tab := newTable[int](1)
	for range 200 {
		h := mustAdd(t, tab, 1)
		var won atomic.Int32
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if v, ok := tab.get(h); ok {
					if v != 1 {
						t.Errorf("got %d", v)
					}
					tab.put(h)
				}
				if _, ok := tab.take(h, nil); ok {
					won.Add(1)
				}
			})
		}
		all.Wait()
		if won.Load() != 1 {
			t.Fatalf("%d took it", won.Load())
		}
	}
	if tab.size() != 0 || len(tab.entries) != 1 {
		t.Errorf("%d open in %d places, want none in 1", tab.size(), len(tab.entries))
	}
}

func TestHeaderHasTheVersion(t *testing.T) {
	header, err := os.ReadFile("../include/redox.h")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`#define REDOX_VERSION "([^"]+)"`).FindSubmatch(header)
	if m == nil || string(m[1]) != redox.Version() {
		t.Errorf("redox.h says %q, golib %q", m, redox.Version())
	}
}
