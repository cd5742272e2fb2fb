package store

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// Request is one read. The caller fills the first part and may not touch Dst until Done was called.
type Request struct {
	Chunk uint32
	Dst   []byte
	Off   int64        // of a range
	Whole bool         // land the chunk; else read the range Off, len(Dst)
	Due   int64        // smaller is served first
	Tap   func([]byte) // of a landing; see Source.Land
	// Done is called once, on a goroutine of the pool, with the chunk's bytes or the failure. It must not block.
	Done func(data []byte, err error)

	seq   uint64
	start time.Time
}

// Queue hands requests to readers, the one that is due first first.
type Queue struct {
	source Source
	ctx    context.Context
	cancel context.CancelCauseFunc
	pool   sync.WaitGroup

	mu      sync.Mutex
	waiting requests
	seq     uint64
	ready   sync.Cond
	busy    map[*Request]struct{}
	slow    time.Duration // what one of the slower reads takes
	closed  bool
}

// NewQueue starts a pool of readers over the source. The bound on reads in flight is also one on threads: each blocked
// read holds one, and the runtime never gives threads back. With 0 readers the queue is drained by Take.
func NewQueue(source Source, readers int) *Queue {
	ctx, cancel := context.WithCancelCause(context.Background())
	q := &Queue{source: source, ctx: ctx, cancel: cancel, busy: map[*Request]struct{}{}}
	q.ready.L = &q.mu
	for range readers {
		q.pool.Go(q.serve)
	}
	return q
}

func (q *Queue) serve() {
	for {
		r, ok := q.Take()
		if !ok {
			return
		}
		if r.Whole {
			q.Finish(r, func() ([]byte, error) { return q.source.Land(q.ctx, r.Chunk, r.Dst, r.Tap) })
		} else {
			q.Finish(r, func() ([]byte, error) { return r.Dst, q.source.Range(q.ctx, r.Chunk, r.Off, r.Dst) })
		}
	}
}

// Submit queues a request. After Close its Done is called at once.
func (q *Queue) Submit(r *Request) {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		r.Done(nil, errClosed())
		return
	}
	r.seq = q.seq
	q.seq++
	heap.Push(&q.waiting, r)
	q.mu.Unlock()
	q.ready.Signal()
	if r.Whole {
		q.source.Hint(r.Chunk)
	}
}

// Take waits for the request that is due first; false after Close. Who takes it must Finish it.
func (q *Queue) Take() (*Request, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.waiting) == 0 && !q.closed {
		q.ready.Wait()
	}
	if q.closed {
		return nil, false
	}
	r := heap.Pop(&q.waiting).(*Request)
	r.start = time.Now()
	q.busy[r] = struct{}{}
	return r, true
}

// Finish runs a taken request's read and reports it.
func (q *Queue) Finish(r *Request, read func() ([]byte, error)) {
	data, err := read()
	q.mu.Lock()
	delete(q.busy, r)
	q.slow = max(time.Since(r.start), q.slow-q.slow/slowMemory)
	q.mu.Unlock()
	r.Done(data, err)
}

// slowMemory is about how many reads a slow one is remembered for.
const slowMemory = 32

// Latency is what a slower one of the latest reads took, or longer if one that is under way takes longer.
func (q *Queue) Latency() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	slow := q.slow
	for r := range q.busy {
		slow = max(slow, time.Since(r.start))
	}
	return slow
}

// InFlight is how many reads are under way and since when the oldest is, for telling a slow storage from a still one.
func (q *Queue) InFlight() (n int, oldest time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for r := range q.busy {
		if oldest.IsZero() || r.start.Before(oldest) {
			oldest = r.start
		}
	}
	return len(q.busy), oldest
}

// Read is a read under way.
type Read struct {
	Chunk uint32
	Bytes int
	Whole bool
	Since time.Time
}

// Reads are those under way, in any order, and how many wait for their turn.
func (q *Queue) Reads() (busy []Read, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for r := range q.busy {
		busy = append(busy, Read{r.Chunk, len(r.Dst), r.Whole, r.start})
	}
	return busy, len(q.waiting)
}

// closeWait is how long Close waits for reads that are under way, so that usually no file is open afterwards. A read
// from a dead network disk never returns; its memory then stays lent until it does, and nothing else depends on it.
const closeWait = time.Second

// Close fails what waits, stops the readers and closes the source. It returns false if a read still hangs.
func (q *Queue) Close() bool {
	q.mu.Lock()
	first := !q.closed
	q.closed = true
	left := q.waiting
	q.waiting = nil
	q.mu.Unlock()
	if !first {
		return true
	}
	q.cancel(errClosed())
	q.ready.Broadcast()
	for _, r := range left {
		r.Done(nil, errClosed())
	}
	idle := make(chan struct{})
	go func() {
		q.pool.Wait()
		q.source.Close()
		close(idle)
	}()
	select {
	case <-idle:
		return true
	case <-time.After(closeWait):
		return false
	}
}

func errClosed() error { return fault.New(fault.Canceled, "the engine was closed") }

// requests is a heap by due time, first come first served among equals.
type requests []*Request

func (h requests) Len() int { return len(h) }
func (h requests) Less(i, j int) bool {
	if h[i].Due != h[j].Due {
		return h[i].Due < h[j].Due
	}
	return h[i].seq < h[j].seq
}
func (h requests) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *requests) Push(x any)   { *h = append(*h, x.(*Request)) }
func (h *requests) Pop() any {
	old := *h
	r := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return r
}
