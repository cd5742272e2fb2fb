package redox

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/node"
	"github.com/redox-loader/redox/golib/internal/plan"
	"github.com/redox-loader/redox/golib/internal/store"
)

// Loader is one rank's passes over a data set, epoch after epoch. Calls may come from any goroutine; those that deliver
// take turns.
//
// An epoch starts with the first call that asks for a batch, and ends with one that reports EndOfEpoch; the call after
// that starts the next epoch. SetEpoch and Restore say where the next call starts instead.
type Loader struct {
	data   *Dataset
	plan   *plan.Plan
	seed   uint64
	world  plan.World
	rank   int
	engine *node.Engine
	run    *node.Run
	mesh   *Mesh   // nil where nothing is exchanged
	vif    float64 // predicted
	closed atomic.Bool
	served bool // by an engine process, whose server tells of stalls

	stall stall
	turn  turn // of the call that delivers

	mu      sync.Mutex
	epoch   uint64
	start   int64 // position at which the epoch is begun or was begun
	running bool  // the epoch was begun and has not been left
	ended   bool  // and all of it was delivered
	fresh   bool  // Restore was called and nothing has been delivered since
}

// turn is a lock that can be waited for with a deadline: it holds a token while it is free.
type turn chan struct{}

func newTurn() turn {
	t := make(turn, 1)
	t.Unlock()
	return t
}

func (t turn) Lock()   { <-t }
func (t turn) Unlock() { t <- struct{}{} }

// Slot is a lent batch.
type Slot = node.Slot

// NewLoader makes a loader with an engine of its own, or on that of another loader (option share).
func (d *Dataset) NewLoader(optionsJSON []byte, resolve Resolver) (*Loader, error) {
	var o loaderOptions
	if err := decode(optionsJSON, &o); err != nil {
		return nil, err
	}
	p, err := d.newPlan(&o.planOptions, resolve)
	if err != nil {
		return nil, err
	}
	cfg, err := d.runConfig(&o, p)
	if err != nil {
		return nil, err
	}
	mesh, err := d.mesh(&o, p, resolve)
	if err != nil {
		return nil, err
	}
	if mesh != nil {
		cfg.Exchange = mesh
	}
	engine, err := d.engine(&o, cfg, resolve, mesh.memory())
	if err != nil {
		mesh.Close()
		return nil, err
	}
	run, err := engine.NewRun(cfg)
	if err != nil {
		engine.Close()
		mesh.Close()
		return nil, o.explained(err, mesh)
	}
	seed, _ := o.seed() // newPlan has checked it
	rho, _ := d.rho()
	vif := 1.0 // in stored order there is nothing to mix
	if p.Shuffled() {
		vif = plan.PredictVIF(rho, cfg.World.Ranks()*cfg.World.BatchSize, p.Window(), p.Chunks())
	}
	return &Loader{
		data: d, plan: p, seed: seed, world: cfg.World, rank: cfg.Rank, engine: engine, run: run, mesh: mesh, vif: vif,
		epoch: o.Epoch, turn: newTurn(),
	}, nil
}

// runConfig checks the options that say how batches are delivered.
func (d *Dataset) runConfig(o *loaderOptions, p *plan.Plan) (node.RunConfig, error) {
	cfg := node.RunConfig{Plan: p}
	var w world
	var err error
	if cfg.World, w, err = o.planWorld(); err != nil {
		return cfg, err
	}
	cfg.Rank = w.rank
	if cfg.Fields, err = d.fieldNumbers(o.Fields); err != nil {
		return cfg, err
	}
	if cfg.Prefetch, err = o.prefetch(); err != nil {
		return cfg, err
	}
	if cfg.Timeout, err = o.timeout(); err != nil {
		return cfg, err
	}
	onError, err := oneOf("on_error", o.OnError, "raise", "skip")
	if err != nil {
		return cfg, err
	}
	cfg.SkipErrors = onError == "skip"
	skipped, err := o.maxSkipped()
	cfg.MaxSkipped = int(skipped)
	return cfg, err
}

// fieldNumbers finds wanted fields in the schema; nil means all.
func (d *Dataset) fieldNumbers(names []string) ([]int, error) {
	if names == nil {
		return nil, nil
	}
	fields := d.data.Manifest.Schema.Fields
	numbers := make([]int, 0, len(names))
	for _, name := range names {
		i := slices.IndexFunc(fields, func(f chunk.Field) bool { return f.Name == name })
		if i < 0 {
			have := make([]string, len(fields))
			for k, f := range fields {
				have[k] = f.Name
			}
			return nil, fault.New(fault.Invalid, "fields: the data set has no field %q, it has %q", name, have)
		}
		if slices.Contains(numbers, i) {
			return nil, fault.New(fault.Invalid, "fields: %q is named twice", name)
		}
		numbers = append(numbers, i)
	}
	if len(numbers) == 0 {
		return nil, fault.New(fault.Invalid, "fields: expected at least one")
	}
	return numbers, nil
}

// engine returns the memory that a loader runs on, with a reference. Connections take some of the limit.
func (d *Dataset) engine(o *loaderOptions, cfg node.RunConfig, resolve Resolver, connections int64) (*node.Engine, error) {
	limit, err := o.memoryLimit()
	if err != nil {
		return nil, err
	}
	io, err := store.ParseIO(o.IO)
	if err != nil {
		return nil, err
	}
	if o.Share != nil {
		other, err := referred("share", *o.Share, "loader", resolve.Loader)
		switch {
		case err != nil:
			return nil, err
		case other.closed.Load():
			return nil, fault.New(fault.BadHandle, "share=%d is not an open loader", *o.Share)
		case other.data.data.Manifest.Fingerprint != d.data.Manifest.Fingerprint || other.data.path != d.path:
			return nil, fault.New(fault.Invalid, "share=%d is a loader of another data set", *o.Share)
		}
		return other.engine.Retain(), nil
	}
	reader := d.newReader(io)
	defer reader.Close() // the engine has its own reference
	if limit == 0 {
		if limit, err = automaticLimit(reader, cfg); err != nil {
			return nil, err
		}
	} else if limit -= connections; limit <= 0 {
		return nil, fault.New(fault.Memory, "memory_limit: connections to the other nodes alone take %d bytes", connections)
	}
	return node.NewEngine(reader, limit, log.line)
}

// automaticLimit is what window, read-ahead and batches need, at most half of the memory there is.
func automaticLimit(reader *node.Reader, cfg node.RunConfig) (int64, error) {
	_, good, err := reader.Needed(cfg)
	return min(good, max(1, store.FreeMemory()/2)), err
}

// explained says of a limit that nobody gave where it came from, and adds what the connections take.
func (o *loaderOptions) explained(err error, mesh *Mesh) error {
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != fault.Memory || o.Share != nil {
		return err
	}
	if mesh != nil {
		needed := limitFor(mesh.Nodes(), f.Needed)
		f.Message += fmt.Sprintf(" (besides, connections to the other nodes take %d bytes: memory_limit=%d is needed)",
			needed-f.Needed, needed)
		f.Needed, f.Given = needed, f.Given+mesh.memory()
	}
	if limit, _ := o.memoryLimit(); limit == 0 {
		f.Message = `memory_limit="auto" takes at most half of the memory that this process may use: ` + f.Message
	}
	return err
}

// NextBatch fills the caller's memory with the next batch.
func (l *Loader) NextBatch(b *Batch, timeout time.Duration) error {
	return l.deliver(timeout, func(left time.Duration) error { return l.run.Next(b, left) })
}

// Acquire lends the next batch, assembled ahead.
func (l *Loader) Acquire(b *Batch, timeout time.Duration) (s *Slot, err error) {
	err = l.deliver(timeout, func(left time.Duration) error {
		s, err = l.run.Acquire(b, left)
		return err
	})
	return s, err
}

// deliver waits for its turn, starts the epoch if need be and notes its end.
func (l *Loader) deliver(timeout time.Duration, call func(left time.Duration) error) (err error) {
	asked := time.Now()
	defer func() {
		if l.stall.over(asked, err, l.run.Timeout()) && !l.served {
			l.tell(err)
		}
	}()
	if err := l.run.Await(l.turn, timeout); err != nil {
		return err
	}
	defer l.turn.Unlock()
	if err := l.begin(); err != nil {
		return err
	}
	if timeout > 0 {
		timeout = max(0, timeout-time.Since(asked))
	}
	err = call(timeout)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.fresh = false
	case errors.Is(err, fault.Of(fault.EndOfEpoch)):
		l.ended, l.fresh = true, false
	}
	return err
}

// begin starts the epoch that is due: the one set, or the next after one that has ended.
func (l *Loader) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed.Load() {
		return fault.New(fault.BadHandle, "the loader is closed")
	}
	if l.running && !l.ended {
		return nil
	}
	epoch, start := l.epoch, l.start
	if l.ended {
		epoch, start = l.epoch+1, 0
	}
	if err := l.run.Start(epoch, start); err != nil {
		return err
	}
	l.epoch, l.start, l.running, l.ended = epoch, start, true, false
	return nil
}

// SetEpoch makes the next batch the first of an epoch. Right after Restore of a state of that epoch it keeps the
// state's position: of an epoch that was delivered whole, nothing is left.
func (l *Loader) SetEpoch(epoch uint64) error {
	l.turn.Lock()
	defer l.turn.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fresh && epoch == l.epoch {
		l.ended = false // so that an epoch that is over ends once more, without a sample
		return nil
	}
	l.epoch, l.start = epoch, 0
	l.running, l.ended, l.fresh = false, false, false
	return nil
}

// Cancel wakes every call that waits; the loader stays usable.
func (l *Loader) Cancel() { l.run.Cancel() }

// Rest waits until what other nodes may still want of an epoch that was delivered whole has been sent; for the end of a
// program.
func (l *Loader) Rest(timeout time.Duration) error {
	if l.mesh != nil && !l.run.Rest(timeout) {
		return fault.New(fault.TimedOut, "other nodes have not taken all of their samples in %v", timeout)
	}
	return nil
}

// Close ends the loader. Lent slots stay valid.
func (l *Loader) Close() error {
	if l.closed.Swap(true) {
		return fault.New(fault.BadHandle, "the loader is closed")
	}
	l.run.Close()
	l.engine.Close()
	l.mesh.Close()
	return nil
}
