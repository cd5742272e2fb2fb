package resident

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redox-loader/redox/golib/internal/buffer"
	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/store"
	"github.com/redox-loader/redox/golib/internal/store/storetest"
)

// world is a set over a file of small chunks, with room for so many of them.
type world struct {
	set    *Set
	queue  *store.Queue
	source *store.Flat
	files  *storetest.Faulty
	budget *buffer.Budget
	arena  *buffer.Arena
	index  chunk.Index
}

const pages = 2 // of each chunk

func newWorld(t *testing.T, chunks, room int) *world {
	t.Helper()
	return newWorldOf(t, slices.Repeat([]int{1}, chunks), int64(room*pages*buffer.Page))
}

// newWorldOf has so many samples in each of its chunks, all with the content of the chunk.
func newWorldOf(t *testing.T, samples []int, limit int64) *world {
	t.Helper()
	f, err := chunk.ParseField("x", "uint8[5000]")
	if err != nil {
		t.Fatal(err)
	}
	layout := chunk.NewLayout(chunk.Schema{Fields: []chunk.Field{f}, Layout: "scalar"})
	w := &world{}
	var file []byte
	var table storetest.Table
	b := chunk.NewBuilder(layout)
	for c, n := range samples {
		b.Reset()
		for range n {
			buf, err := layout.AppendSample(b.Buffer(), []chunk.Value{{Data: content(uint32(c))}})
			if err != nil {
				t.Fatal(err)
			}
			b.Add(uint64(c), "", buf)
		}
		enc, err := b.Encode(chunk.None)
		if err != nil {
			t.Fatal(err)
		}
		e := enc.Place(uint64(c), uint64(c))
		e.Offset = uint64(len(file))
		w.index.Entries = append(w.index.Entries, e)
		table = append(table, store.Extent{Offset: int64(e.Offset), Length: int64(e.Stored)})
		file = append(append(file, enc.Head...), enc.Payload...)
		file = append(file, make([]byte, -len(file)&4095)...)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), file, 0o666); err != nil {
		t.Fatal(err)
	}
	w.files = &storetest.Faulty{Files: store.NewLocal(dir, []string{"f"}, store.Buffered, 0)}
	w.source = store.NewFlat(w.files, table)
	w.queue = store.NewQueue(w.source, 2)
	w.budget = buffer.NewBudget(limit)
	if w.arena, err = w.budget.NewArena("test", w.budget.Limit()); err != nil {
		t.Fatal(err)
	}
	w.set = New(w.source, w.queue, w.arena, layout, &w.index)
	t.Cleanup(func() {
		w.set.Close()
		w.queue.Close()
		w.arena.Close()
		if w.budget.Used() != 0 {
			t.Errorf("%d bytes are left", w.budget.Used())
		}
	})
	return w
}

func content(c uint32) []byte {
	b := make([]byte, 5000)
	for i := range b {
		b[i] = byte(int(c)*7 + i)
	}
	return b
}

func (w *world) take(t *testing.T, u *User, id uint32, due int64) *Chunk {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	c, _, err := u.Take(ctx, id, due)
	if err != nil {
		t.Fatalf("take %d: %v", id, err)
	}
	return c
}

func landed(t *testing.T, c *Chunk) {
	t.Helper()
	if err := c.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, body, _ := c.View().Stored(0); string(body) != string(content(c.ID())) {
		t.Fatalf("chunk %d has other bytes", c.ID())
	}
}

// TestLandedOnce: however many take a chunk at once, it is read once.
func TestLandedOnce(t *testing.T) {
	w := newWorld(t, 3, 3)
	var wg sync.WaitGroup
	for range 20 {
		u := w.set.NewUser(nil, nil)
		wg.Go(func() {
			for id := range uint32(3) {
				c := w.take(t, u, id, 0)
				landed(t, c)
				defer u.Drop(c, Never)
			}
		})
	}
	wg.Wait()
	if n := w.source.Counters().Lands; n != 3 {
		t.Errorf("3 chunks were read %d times", n)
	}
}

// TestBelady: over several epochs of random order, with room for half of the chunks, the set reads as few chunks as
// the optimum that knows the future.
func TestBelady(t *testing.T) {
	const chunks, room, epochs = 24, 12, 6
	rng := rand.New(rand.NewPCG(3, 4))
	var order []uint32
	for range epochs {
		for _, c := range rng.Perm(chunks) {
			order = append(order, uint32(c))
		}
	}
	nextUse := func(c uint32, after int) int64 {
		for i := after + 1; i < len(order); i++ {
			if order[i] == c {
				return int64(i)
			}
		}
		return Never
	}
	w := newWorld(t, chunks, room)
	u := w.set.NewUser(nil, nil)
	for at, id := range order {
		u.Advance(int64(at))
		c := w.take(t, u, id, int64(at))
		landed(t, c)
		u.Drop(c, nextUse(id, at))
	}
	// The optimum: on a miss with a full set, the one used last goes.
	cached, misses := map[uint32]bool{}, int64(0)
	for at, id := range order {
		if !cached[id] {
			misses++
			if len(cached) == room {
				victim, far := uint32(0), int64(-1)
				for c := range cached {
					if n := nextUse(c, at); n > far {
						victim, far = c, n
					}
				}
				delete(cached, victim)
			}
			cached[id] = true
		}
	}
	if n := w.source.Counters().Lands; n != misses {
		t.Errorf("%d chunks were read, the optimum is %d", n, misses)
	}
}

// TestRandomUsers runs many users at random against what must always hold: content is right, a pinned chunk stays, the
// budget holds, and everybody gets on as long as each pins no more than its share.
func TestRandomUsers(t *testing.T) {
	const chunks, users, each = 30, 4, 3
	w := newWorld(t, chunks, users*each)
	w.files.Flip = func(_ uint32, off int64, try int) bool { return try%4 == 1 } // passes on the second try
	var wg sync.WaitGroup
	for n := range users {
		rng := rand.New(rand.NewPCG(uint64(n), 1))
		u := w.set.NewUser(func(c uint32) int64 { return int64(c) * 3 }, nil)
		wg.Go(func() {
			defer u.Close()
			var held []*Chunk
			for at := range int64(400) {
				u.Advance(at)
				if len(held) == each || len(held) > 0 && rng.IntN(2) == 0 {
					i := rng.IntN(len(held))
					landed(t, held[i])
					u.Drop(held[i], at+rng.Int64N(100))
					held[i] = held[len(held)-1]
					held = held[:len(held)-1]
					continue
				}
				if rng.IntN(20) == 0 {
					u.Rekey()
				}
				held = append(held, w.take(t, u, rng.Uint32N(chunks), at))
			}
			for _, c := range held {
				u.Drop(c, Never)
			}
		})
	}
	wg.Wait()
	if w.budget.Peak() > w.budget.Limit() {
		t.Errorf("peak %d of %d", w.budget.Peak(), w.budget.Limit())
	}
	if w.set.Counters().Evicted == 0 {
		t.Error("nothing was evicted: the test tests nothing")
	}
}

// TestTakeWaitsForRoom: with everything pinned a Take waits, says for what, ends with its context, and goes on when a
// chunk is dropped.
func TestTakeWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4, 2)
		told := 0
		u := w.set.NewUser(nil, func() { told++ })
		a, b := w.take(t, u, 0, 0), w.take(t, u, 1, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := u.Take(ctx, 2, 2); err == nil {
			t.Fatal("room for a third of two")
		}
		got := make(chan *Chunk)
		go func() { got <- w.take(t, u, 3, 3) }()
		synctest.Wait()
		if b := u.Blocked(); b == nil || b.Chunk != 3 || b.Due != 3 || told != 2 {
			t.Errorf("blocked: %+v, told %d times", b, told)
		}
		goesOn(t, u, a, b, got)
	})
}

// TestTwoTakesOfARun: while a pass lingers, its reader and the next one's may both wait; whichever stays is told of.
func TestTwoTakesOfARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, dues := range [][2]int64{{2, 3}, {3, 2}} {
			w := newWorld(t, 4, 2)
			u := w.set.NewUser(nil, func() {})
			a, b := w.take(t, u, 0, 0), w.take(t, u, 1, 1)
			ctx, cancel := context.WithCancel(t.Context())
			ended, got := make(chan struct{}), make(chan *Chunk)
			go func() {
				defer close(ended)
				if _, _, err := u.Take(ctx, 2, dues[0]); err == nil {
					t.Error("room for a third of two")
				}
			}()
			synctest.Wait()
			go func() { got <- w.take(t, u, 3, dues[1]) }()
			synctest.Wait()
			if b := u.Blocked(); b == nil || b.Due != min(dues[0], dues[1]) {
				t.Errorf("blocked: %+v", b)
			}
			cancel()
			<-ended
			synctest.Wait()
			if b := u.Tight(); b == nil || b.Chunk != 3 {
				t.Errorf("blocked: %+v", b)
			}
			goesOn(t, u, a, b, got)
		}
	})
}

// goesOn drops what the run holds, and sees a blocked Take get its chunk when the first is gone.
func goesOn(t *testing.T, u *User, a, b *Chunk, got <-chan *Chunk) {
	t.Helper()
	u.Drop(a, Never)
	c := <-got
	landed(t, c)
	if u.Blocked() != nil {
		t.Error("still blocked")
	}
	u.Drop(b, Never)
	u.Drop(c, Never)
}

// TestShare: a run gets no more than its share, even if there is room.
func TestShare(t *testing.T) {
	w := newWorld(t, 4, 4)
	u := w.set.NewUser(nil, nil)
	u.SetShare(2 * pages * buffer.Page)
	a, b := w.take(t, u, 0, 0), w.take(t, u, 1, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, _, err := u.Take(ctx, 2, 2); err == nil {
		t.Error("more than its share")
	}
	u.SetShare(pages * buffer.Page)
	if over := u.Over(); over != pages*buffer.Page {
		t.Errorf("over its share by %d", over)
	}
	u.Drop(a, Never)
	u.Drop(b, Never)
}

// TestFailures: what cannot be read or is wrong twice fails for those who wait, and is tried again by the next run.
func TestFailures(t *testing.T) {
	w := newWorld(t, 3, 3)
	u := w.set.NewUser(nil, nil)
	bad := true
	w.files.Flip = func(_ uint32, off int64, _ int) bool { return bad && off == int64(w.index.Entries[1].Offset) }
	w.files.Fail = func(_ uint32, off int64, _ int) error {
		if bad && off == int64(w.index.Entries[2].Offset) {
			return os.ErrPermission
		}
		return nil
	}
	c := w.take(t, u, 1, 0)
	if err := c.Wait(t.Context()); err != nil || !c.Damaged() || c.View().Check(0) == nil {
		t.Errorf("damaged payload: %v, %v", err, c.Damaged())
	}
	f := w.take(t, u, 2, 0)
	err := f.Wait(t.Context())
	if e, ok := err.(*fault.Error); !ok || e.Kind != fault.IO || e.Chunk != 2 {
		t.Errorf("unreadable chunk: %+v", err)
	}
	u.Drop(c, 5)
	u.Drop(f, 5)
	w.files.Lock()
	bad = false
	w.files.Unlock()
	for _, id := range []uint32{1, 2} {
		c := w.take(t, u, id, 0)
		landed(t, c)
		if c.Damaged() {
			t.Errorf("chunk %d is still damaged", id)
		}
		u.Drop(c, Never)
	}
	if n := w.set.Counters().Rereads; n != 1 {
		t.Errorf("%d second chances", n)
	}
}

// TestDoubleDropPanics, as somebody else's pin would be lost.
func TestDoubleDropPanics(t *testing.T) {
	w := newWorld(t, 1, 1)
	u := w.set.NewUser(nil, nil)
	c := w.take(t, u, 0, 0)
	landed(t, c)
	u.Drop(c, Never)
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	u.Drop(c, Never)
}

// TestStringNamesChunkAndFile for stall messages.
func TestStringNamesChunkAndFile(t *testing.T) {
	w := newWorld(t, 1, 1)
	u := w.set.NewUser(nil, nil)
	c := w.take(t, u, 0, 0)
	if s := fmt.Sprint(c); len(s) < 20 {
		t.Errorf("says only %q", s)
	}
	u.Drop(c, Never)
}
