package redox

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redox-loader/redox/golib/internal/attach"
	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/node"
	"github.com/redox-loader/redox/golib/internal/store"
)

// firstTrainer is how long an engine waits for the first process that it is there for.
const firstTrainer = 10 * time.Second

type serveOptions struct {
	LogFile int `json:"log_file"` // a file that clients may read, to know the last words of an engine that died
}

// Serve is the whole life of an engine process: it answers the processes that connect to a listening SOCK_SEQPACKET
// socket, which it takes over, and returns when the last trainer is gone.
func Serve(socket int, optionsJSON []byte) error {
	var o serveOptions
	if err := decode(optionsJSON, &o); err != nil {
		return err
	}
	file := os.NewFile(uintptr(socket), "engine socket")
	if file == nil {
		return fault.New(fault.Invalid, "socket=%d is no file descriptor", socket)
	}
	opened, err := net.FileListener(file)
	listens, _ := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	file.Close()
	if err != nil {
		return fault.Wrap(fault.Invalid, err, "socket=%d is no listening socket", socket)
	}
	listener, ok := opened.(*net.UnixListener)
	if !ok || listener.Addr().Network() != "unixpacket" {
		opened.Close()
		return fault.New(fault.Invalid, "socket=%d is not of type SOCK_SEQPACKET", socket)
	}
	if listens == 0 { // FileListener asks for the type only
		opened.Close()
		return fault.New(fault.Invalid, "socket=%d does not listen: it must be bound and listening", socket)
	}
	cfg := attach.Config{Listener: listener, Open: openServed, Log: log.line, Grace: firstTrainer, Timeout: defaultTimeout}
	if o.LogFile != 0 {
		cfg.LogFile = os.NewFile(uintptr(o.LogFile), "engine log")
		lines := startLogFile(cfg.LogFile)
		defer lines.stop()
		cfg.Lines = lines.take
	}
	return attach.Serve(cfg)
}

// servedData is the data set of an engine process.
type servedData struct {
	dataset *Dataset
	options map[string]json.RawMessage // of a loader, without rank
	network map[string]json.RawMessage // of a mesh, beyond those of a loader
	ranks   int                        // on this node: memory_limit is for all of them
	auto    bool                       // memory_limit was not given
	subset  *Subset
	path    string

	// The memory that loaders share. Only NewLoader and Close touch it, which attach calls one at a time.
	engine  *node.Engine
	loaders atomic.Int64 // made on it and not closed

	mesh  *Mesh // made when it is first needed; the same rules
	alone bool  // it is never needed
}

func openServed(optionsJSON []byte, numbers []int64) (attach.Data, error) {
	var o struct {
		Path   string                     `json:"path"`
		Ranks  int                        `json:"ranks"`
		Subset string                     `json:"subset"` // hash of the list, for comparing
		Loader map[string]json.RawMessage `json:"loader"`
		Mesh   map[string]json.RawMessage `json:"mesh"`
	}
	if err := decode(optionsJSON, &o); err != nil {
		return nil, err
	}
	d, err := Open(o.Path, nil)
	if err != nil {
		return nil, err
	}
	s := &servedData{dataset: d, options: o.Loader, network: o.Mesh, ranks: max(1, o.Ranks), path: o.Path}
	limit := string(o.Loader["memory_limit"])
	s.auto = limit == "" || limit == "null" || limit == `"auto"`
	if numbers != nil {
		if s.subset, err = d.NewSubset(numbers); err != nil {
			d.Close()
			return nil, err
		}
	}
	return s, nil
}

func (s *servedData) Info() []byte {
	b, _ := json.Marshal(map[string]any{"path": s.path, "ranks": s.ranks, "loader": s.options}) // came as JSON
	return b
}

func (s *servedData) Origin(numbers []int64) ([]int64, []string, error) {
	return s.dataset.Origin(numbers)
}

func (s *servedData) Close() {
	if s.engine != nil {
		s.engine.Close()
	}
	s.mesh.Close()
	s.dataset.Close()
}

// NewLoader makes a loader in the memory of the others. Where a limit that nobody gave is too small for one more, the
// loader gets memory of its own.
func (s *servedData) NewLoader(rank, ahead int) (attach.Loader, error) {
	if s.engine != nil && s.auto && s.loaders.Load() == 0 {
		s.engine.Close() // the new loader may need more
		s.engine = nil
	}
	if s.engine != nil {
		l, err := s.newLoader(rank, ahead, s.engine)
		if err == nil || !s.auto || !errors.Is(err, fault.Of(fault.Memory)) {
			return s.lend(l, err, true)
		}
		l, err = s.newLoader(rank, ahead, nil)
		return s.lend(l, err, false)
	}
	l, err := s.newLoader(rank, ahead, nil)
	if err == nil {
		s.engine = l.engine.Retain()
	}
	return s.lend(l, err, true)
}

func (s *servedData) newLoader(rank, ahead int, engine *node.Engine) (*Loader, error) {
	if err := s.connect(rank); err != nil {
		return nil, err
	}
	options, resolve := s.asked(rank), s.resolver(engine)
	options["prefetch"] = ahead
	if s.mesh != nil {
		options["mesh"] = 1
	}
	if engine != nil {
		options["share"] = 1
	} else if s.auto {
		limit, err := s.automaticLimit(options, resolve)
		if err != nil {
			return nil, err
		}
		options["memory_limit"] = limit
	}
	text, err := encode(options)
	if err != nil {
		return nil, err
	}
	return s.dataset.NewLoader(text, resolve)
}

// asked are the options of a rank.
func (s *servedData) asked(rank int) map[string]any {
	options := map[string]any{"rank": rank}
	for name, value := range s.options {
		options[name] = value
	}
	if s.subset != nil {
		options["subset_handle"] = 1
	}
	return options
}

// resolver finds what the handles in those options mean.
func (s *servedData) resolver(engine *node.Engine) Resolver {
	return Resolver{
		Subset: func(uint64) (*Subset, bool) { return s.subset, s.subset != nil },
		Loader: func(uint64) (*Loader, bool) { return &Loader{data: s.dataset, engine: engine}, engine != nil },
		Mesh:   func(uint64) (*Mesh, bool) { return s.mesh, s.mesh != nil },
	}
}

// automaticLimit is what the node's ranks need together.
func (s *servedData) automaticLimit(options map[string]any, resolve Resolver) (int64, error) {
	text, err := encode(options)
	if err != nil {
		return 0, err
	}
	var o loaderOptions
	if err := decode(text, &o); err != nil {
		return 0, err
	}
	p, err := s.dataset.newPlan(&o.planOptions, resolve)
	if err != nil {
		return 0, err
	}
	cfg, err := s.dataset.runConfig(&o, p)
	if err != nil {
		return 0, err
	}
	reader := s.dataset.newReader(store.Buffered)
	defer reader.Close()
	_, good, err := reader.Needed(cfg)
	return min(good*int64(s.ranks)+s.mesh.memory(), max(1, store.FreeMemory()/2)), err
}

// lend makes a loader one that attach can serve.
func (s *servedData) lend(l *Loader, err error, shared bool) (attach.Loader, error) {
	if err != nil {
		return nil, err
	}
	if shared {
		s.loaders.Add(1)
	}
	l.served = true
	return &servedLoader{Loader: l, data: s, shared: shared}, nil
}

// servedLoader is a loader as attach sees it.
type servedLoader struct {
	*Loader
	data   *servedData
	shared bool
}

func (l *servedLoader) Begin(epoch uint64, position int64) error {
	l.turn.Lock()
	defer l.turn.Unlock()
	l.mu.Lock()
	l.epoch, l.start = epoch, position
	l.running, l.ended, l.fresh = false, false, false
	l.mu.Unlock()
	return l.begin()
}

func (l *servedLoader) Slots() int                       { return l.run.Slots() }
func (l *servedLoader) Memory() (fd uintptr, size int64) { return l.run.Engine().SlotMemory() }
func (l *servedLoader) NewResult(size, pool int64) *node.Result {
	spare := int64(0)
	if l.data.auto {
		spare = store.FreeMemory() / 4
	}
	return l.run.Engine().NewResult(size, pool, spare)
}

func (l *servedLoader) Size() int64            { return l.plan.Size() }
func (l *servedLoader) Batches() int64         { return l.run.Batches() }
func (l *servedLoader) Stats() ([]byte, error) { return l.StatsJSON() }
func (l *servedLoader) Sight() node.Sight      { return l.run.Sight() }
func (l *servedLoader) Stall() error           { return l.run.Stall() }

func (l *servedLoader) State(epoch uint64, position int64) ([]byte, error) {
	return encode(l.state(epoch, position))
}

func (l *servedLoader) Check(stateJSON []byte) error {
	var st state
	if err := json.Unmarshal(stateJSON, &st); err != nil {
		return fault.New(fault.State, "not a state: %v", err)
	}
	return l.fits(&st)
}

func (l *servedLoader) Close() error {
	err := l.Loader.Close()
	if err == nil && l.shared {
		l.data.loaders.Add(-1)
	}
	return err
}
