package node

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redox-loader/redox/golib/internal/exchange"
	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/plan"
	"github.com/redox-loader/redox/golib/internal/resident"
)

const (
	// aheadChunks is how many chunks at least are read before the batch that needs them is begun: twice the reads in
	// flight.
	aheadChunks = 2 * defaultReaders
	// maxWorkers bounds assembly: beside a trainer a few processors copy faster than memory delivers.
	maxWorkers = 4
)

// RunConfig is one rank's part in a plan.
type RunConfig struct {
	Plan       *plan.Plan
	World      plan.World
	Rank       int
	Fields     []int         // wanted fields by their place in the schema, in batch order; nil: all
	Prefetch   int           // batches assembled ahead into slots, fewer where memory is short; 0: none, for Next only
	Timeout    time.Duration // of every wait for a batch
	SkipErrors bool          // corrupt samples are replaced, counted and logged instead of ending the run
	MaxSkipped int           // more than that in a run ends it all the same
	Once       bool          // no epoch follows: nothing is read beyond the end
	// Exchange is how samples of other nodes come, or nil: then they are read from storage, one by one.
	Exchange exchange.Exchange
}

// Run is one rank's passes over the data set, one epoch at a time. Calls may come from any goroutine; Next, Acquire
// and Start take turns, Cancel, Stats and Slot.Release never wait for them.
type Run struct {
	eng  *Engine
	cfg  RunConfig
	rec  *record
	user *resident.User
	need demand
	turn chan struct{} // holds a token while no call is under way

	ahead     int // chunks read before the batch that needs them is begun
	credit    int // incoming samples at once; 0 without exchange
	largest   int64
	margin    spare
	punctual  *punctuality
	passes    map[uint64]uint64 // over each epoch; whoever has the turn
	lingering atomic.Pointer[pass]
	behind    sync.WaitGroup

	current atomic.Pointer[pass]
	own     *assembler // of the calls; used by whoever has the turn
	counts  counters

	dealing sync.Mutex
	epochs  [2]dealt // the last two

	mu       sync.Mutex
	pass     *pass // of the epoch that was started, or nil
	early    *early
	position int64 // global position behind the last batch delivered
	slots    int   // free slots
	busy     int   // workers that have a job
	holders  int   // slots with callers, and the run itself until it is closed: the last one frees the reservation
	cancel   chan struct{}
	closed   bool
	stop     chan struct{} // closed by Close
	deserted time.Time     // since when none that is owed anything is connected, as far as Rest has looked
	spare    []*job
}

// NewRun reserves memory for a run. It fails with fault.Memory if the window does not fit.
func (e *Engine) NewRun(cfg RunConfig) (*Run, error) {
	if cfg.Rank < 0 || cfg.Rank >= cfg.World.Ranks() {
		return nil, fault.New(fault.Invalid, "rank is %d: there are %d", cfg.Rank, cfg.World.Ranks())
	}
	rec, err := newRecord(e.schema, e.layout, cfg.Fields)
	if err != nil {
		return nil, err
	}
	if _, err := cfg.Plan.Epoch(0).Deal(cfg.World, 0); err != nil { // checks the world
		return nil, err
	}
	if x := cfg.Exchange; x != nil && (x.Nodes() != len(cfg.World.Nodes) || x.Node() != int(cfg.node())) {
		return nil, fault.New(fault.Invalid, "rank %d is of node %d of %d, but the exchange is that of node %d of %d",
			cfg.Rank, cfg.node(), len(cfg.World.Nodes), x.Node(), x.Nodes())
	}
	need, coming, err := e.reserveRun(&cfg, rec)
	if err != nil {
		return nil, err
	}
	r := &Run{
		eng: e.Retain(), cfg: cfg, rec: rec, need: need, turn: make(chan struct{}, 1),
		holders: 1, cancel: make(chan struct{}), stop: make(chan struct{}),
		ahead:  cfg.ahead(),
		credit: coming.coming, largest: coming.sample, punctual: newPunctuality(len(cfg.World.Nodes)), passes: map[uint64]uint64{},
	}
	r.margin.left.Store(int32(coming.spare))
	if cfg.Prefetch > 0 {
		r.slots = cfg.Prefetch + 1
	}
	r.user = e.set.NewUser(r.nextUse, r.wanting)
	r.turn <- struct{}{}
	e.join(r)
	return r, nil
}

// Start begins an epoch at a global position; what was under way ends. Batches already lent stay valid.
func (r *Run) Start(epoch uint64, from int64) error {
	pat := r.patience(r.cfg.Timeout)
	defer pat.done()
	if err := pat.wait(r.turn); err != nil {
		return r.callError(err)
	}
	defer r.endTurn()
	e := r.epoch(epoch)
	deal, err := e.Deal(r.cfg.World, from)
	if err != nil {
		return err
	}
	r.endPass()
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return errClosed()
	}
	ahead := r.early
	r.early = nil
	r.mu.Unlock()
	r.counts.startEpoch(r, ahead)
	p := newPass(r, epoch, e, deal, from)
	if err := p.openLane(); err != nil {
		if ahead != nil {
			ahead.drop(r)
		}
		return err
	}
	r.mu.Lock()
	r.pass, r.position = p, from
	r.mu.Unlock()
	r.current.Store(p)
	if ahead != nil && (ahead.epoch != epoch || from != 0) {
		ahead.drop(r)
		ahead = nil
	}
	p.start(ahead)
	return nil
}

// epoch deals an epoch, unless that was done lately.
func (r *Run) epoch(number uint64) *plan.Epoch {
	r.dealing.Lock()
	defer r.dealing.Unlock()
	for _, d := range r.epochs {
		if d.plan != nil && d.number == number {
			return d.plan
		}
	}
	e := r.cfg.Plan.Epoch(number)
	r.epochs[0], r.epochs[1] = r.epochs[1], dealt{number, e}
	return e
}

// dealt is an epoch with its number.
type dealt struct {
	number uint64
	plan   *plan.Epoch
}

// endPass stops the current pass, if any, and takes back what it holds.
func (r *Run) endPass() {
	r.mu.Lock()
	p := r.pass
	r.pass = nil
	r.mu.Unlock()
	if p != nil {
		p.end()
	}
}

// Timeout is of every wait for a batch, if the call does not say otherwise.
func (r *Run) Timeout() time.Duration { return r.cfg.Timeout }

// Batches is how many batches this rank gets from the position on where the epoch was started.
func (r *Run) Batches() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pass == nil {
		return 0
	}
	return r.pass.batches
}

// Position is the global position behind the last batch delivered: where Start goes on.
func (r *Run) Position() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.position
}

// Cancel wakes every call that waits, with fault.Canceled. The run stays usable.
func (r *Run) Cancel() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.cancel)
	r.cancel = make(chan struct{})
}

// Close ends the run and frees its memory, but for slots that are lent. Safe to call twice.
func (r *Run) Close() {
	r.mu.Lock()
	first := !r.closed
	if first {
		r.closed = true
		close(r.stop)
	}
	r.mu.Unlock()
	if !first {
		return
	}
	<-r.turn // whoever waits has been woken
	r.endPass()
	r.endLinger()
	r.mu.Lock()
	ahead := r.early
	r.early = nil
	r.mu.Unlock()
	if ahead != nil {
		ahead.drop(r)
	}
	r.user.Close()
	r.turn <- struct{}{}
	r.eng.keepSlots(r)
	r.letGo()
}

// keepSlots ends a closed run's reservation but for its slots, some of which may still be lent.
func (e *Engine) keepSlots(r *Run) {
	e.mu.Lock()
	defer e.mu.Unlock()
	slots := demand{slots: r.need.slots}
	e.apply(e.reserved.plus(r.need, -1).plus(slots, 1))
	r.need = slots
	delete(e.runs, r)
	e.divide()
}

// letGo ends the reservation with the last holder: the memory of lent slots stays reserved until they come back.
func (r *Run) letGo() {
	r.mu.Lock()
	r.holders--
	last := r.holders == 0
	r.mu.Unlock()
	if last {
		r.eng.leave(r)
		r.eng.Close()
	}
}

// nextUse tells the resident set when this run uses a chunk that it does not hold.
func (r *Run) nextUse(c uint32) int64 {
	p := r.current.Load()
	if p == nil {
		return resident.Never
	}
	return p.nextUse(plan.ChunkID(c))
}

// patience is that of a call which may wait so long; < 0 means the run's own timeout.
func (r *Run) patience(limit time.Duration) *patience {
	if limit < 0 {
		limit = r.cfg.Timeout
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return &patience{stop: r.stop, cancel: r.cancel, limit: limit}
}

// Await waits for what another call sends, as long as a call of this run would wait.
func (r *Run) Await(ch <-chan struct{}, timeout time.Duration) error {
	pat := r.patience(timeout)
	defer pat.done()
	return r.callError(pat.wait(ch))
}

func (r *Run) endTurn() { r.turn <- struct{}{} }

func errClosed() error { return fault.New(fault.BadHandle, "the loader is closed") }

// callError is what a caller gets for the end of a wait.
func (r *Run) callError(err error) error {
	switch {
	case errors.Is(err, errStopped):
		return errClosed()
	case errors.Is(err, errCanceled):
		return fault.New(fault.Canceled, "the call was canceled")
	case errors.Is(err, errTimeout):
		return r.Stall()
	}
	return err
}
