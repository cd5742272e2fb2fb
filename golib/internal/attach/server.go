package attach

import (
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// Config is what a server is told when it starts.
type Config struct {
	Listener *net.UnixListener // SOCK_SEQPACKET
	Open     Opener
	Log      Logger
	LogFile  *os.File               // what the server says before it dies; handed to clients. May be nil
	Lines    func(limit int) []byte // takes lines of the log that nobody took before. May be nil
	Grace    time.Duration          // how long to wait for the first trainer
	Timeout  time.Duration          // of a client's wait for a slot, until the options say otherwise
}

// Server is one engine's face to the processes of its node.
type Server struct {
	Config
	began    time.Time
	instance uint64 // tells this server from one that had its name before
	stopping chan struct{}
	closing  sync.WaitGroup

	opening sync.Mutex // held while the data set is opened, or a loader made

	mu       sync.Mutex
	timeout  time.Duration
	data     Data
	options  []byte // that data was opened with
	clients  map[*client]struct{}
	trainers map[int]*trainer
	loans    loans
	reading  *reading           // nil before the first READ
	arenas   map[uint64]*served // by number; a loader whose memory it is
	stopped  bool
	reader   logReader
	cpus     unix.CPUSet // that this process may run on: those of all trainers there were
	meeting  meeting
}

// Serve answers clients until the last trainer is gone.
func Serve(cfg Config) error {
	s := &Server{
		Config: cfg, began: time.Now(), instance: rand.Uint64(), stopping: make(chan struct{}), timeout: cfg.Timeout, clients: map[*client]struct{}{},
		trainers: map[int]*trainer{}, arenas: map[uint64]*served{}, meeting: meeting{changed: make(chan struct{})},
	}
	defer s.shutDown()
	grace := time.AfterFunc(cfg.Grace, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.trainers) == 0 {
			s.stop()
		}
	})
	defer grace.Stop()
	for {
		conn, err := s.Listener.AcceptUnix()
		if err != nil {
			select {
			case <-s.stopping:
				return nil
			default:
				return fault.Wrap(fault.Internal, err, "accept a client")
			}
		}
		go s.serve(conn)
	}
}

// stop makes Serve return. mu is held.
func (s *Server) stop() {
	if !s.stopped {
		s.stopped = true
		close(s.stopping)
		s.Listener.Close()
	}
}

// shutDown closes what is left; the process is about to end, so it does not wait for long.
func (s *Server) shutDown() {
	s.mu.Lock()
	s.stop()
	for c := range s.clients {
		c.conn.Close()
	}
	data, rd := s.data, s.reading
	s.mu.Unlock()
	closed := make(chan struct{})
	go func() {
		s.closing.Wait()
		if rd != nil {
			rd.Close()
		}
		if data != nil {
			data.Close()
		}
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(lastWords + time.Second):
	}
}

// prepare opens the data set for the first client, and compares options for the others. A client without options has
// only come for batches that others were given.
func (s *Server) prepare(options []byte, subset []int64, timeout time.Duration) error {
	s.opening.Lock()
	defer s.opening.Unlock()
	if len(options) == 0 {
		if s.data == nil {
			return fault.New(fault.Canceled, "this engine has not served anybody yet")
		}
		return nil
	}
	if s.data == nil {
		data, err := s.Open(options, subset)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.data, s.options = data, options
		if timeout > 0 {
			s.timeout = timeout
		}
		s.mu.Unlock()
		return nil
	}
	return sameOptions(s.options, options)
}

// loader takes a free loader of a rank, or makes one.
func (s *Server) loader(r *rank, workers int) (*served, error) {
	s.opening.Lock()
	defer s.opening.Unlock()
	ahead := slotsAhead(workers)
	if ld := s.takeFree(r, ahead); ld != nil {
		return ld, nil
	}
	made, err := s.data.NewLoader(r.number, ahead)
	if err != nil {
		return nil, err
	}
	ld := &served{Loader: made, rank: r.number, ahead: ahead}
	var file unix.Stat_t
	fd, _ := made.Memory()
	if err := unix.Fstat(int(fd), &file); err != nil {
		made.Close()
		return nil, fault.Wrap(fault.Internal, err, "identify the memory of batches")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ld.arena = file.Ino
	if known := s.arenas[ld.arena]; known == nil || known.closed {
		s.arenas[ld.arena] = ld
	}
	return ld, nil
}

// settling is how long a new pass waits for the memory of one that may be over: the word of it, on another connection, may
// be read after BEGIN though it was sent before.
const settling = time.Second

// loaderFor is loader for a new pass.
func (s *Server) loaderFor(p *pass) (*served, error) {
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		ld, err := s.loader(p.rank, p.workers)
		if err == nil || fault.KindOf(err) != fault.Memory || time.Since(begun) > settling {
			return ld, err
		}
		s.mu.Lock()
		others := slices.ContainsFunc(p.rank.passes, func(o *pass) bool { return o != p && o.loader != nil && !o.retired })
		s.mu.Unlock()
		if !others {
			return s.loader(p.rank, p.workers)
		}
	}
}

// slotsAhead is how many batches are assembled ahead: for each worker two on their way to the trainer, as torch has them
// by default, and one being worked on; two more with the trainer.
func slotsAhead(workers int) int { return 3*workers + 2 }

// takeFree returns a free loader that assembles as far ahead as wanted; one that does not is closed, so that its memory
// is there for another.
func (s *Server) takeFree(r *rank, ahead int) *served {
	s.mu.Lock()
	n := len(r.free)
	if n == 0 {
		s.mu.Unlock()
		return nil
	}
	ld := r.free[n-1]
	r.free = r.free[:n-1]
	if ld.ahead != ahead {
		s.reclaim(ld, false)
	}
	fits := ld.ahead == ahead || ld.lent > 0 // what is lent would stay reserved
	s.mu.Unlock()
	if fits {
		return ld
	}
	ld.closed = true
	ld.Close()
	return s.takeFree(r, ahead)
}

// begin handles BEGIN: a client joins the pass of its iteration, or makes it.
func (s *Server) begin(c *client, key passKey, worker, workers int, birth uint64, w word) (*pass, error) {
	s.mu.Lock()
	r := c.trainer.rank(c.rank)
	i := slices.IndexFunc(r.passes, func(p *pass) bool { return p.awaits(key, worker, workers, birth) })
	if i < 0 {
		r.cursor.tell(w)
		p := &pass{
			server: s, key: key, trainer: c.trainer, rank: r, workers: workers, birth: birth - uint64(worker), made: make(chan struct{}),
			clients: map[*client]bool{}, joined: map[int]bool{}, told: map[int]bool{}, ready: map[uint64]*loan{},
			changed: make(chan struct{}),
		}
		i = len(r.passes)
		r.passes = append(r.passes, p)
		defer s.equip(p)
	} else {
		r.cursor.heard(w)
	}
	defer s.mu.Unlock()
	p := r.passes[i]
	p.joined[worker] = true
	if p.failure != nil {
		return nil, p.failure
	}
	if p.over { // the others came, and left before the end: nobody waits for this worker's batches
		return nil, errOver()
	}
	p.clients[c] = true
	c.pass, c.worker = p, worker
	return p, nil
}

// equip gives a new pass its loader and its epoch.
func (s *Server) equip(p *pass) {
	defer close(p.made)
	ld, err := s.loaderFor(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		p.loader, ld.pass = ld, p
		p.epoch, p.start = p.rank.cursor.begin(ld.Size())
		p.rank.latest.epoch, p.rank.latest.start = p.epoch, p.start
		p.rank.latest.began++
		p.rank.latest.pass = p
		p.rank.last = ld
		if err = ld.Begin(p.epoch, p.start); err == nil {
			p.batches = ld.Batches()
		}
	}
	if p.failure = err; err != nil {
		p.part()
	}
}

// anyLoader returns a loader of a rank for asking it something; without one, it makes one.
func (s *Server) anyLoader(r *rank) (*served, error) {
	s.mu.Lock()
	if ld := r.last; ld != nil && !ld.closed {
		s.mu.Unlock()
		return ld, nil
	}
	s.mu.Unlock()
	ld, err := s.loader(r, 1)
	if err == nil {
		s.mu.Lock()
		r.free = append(r.free, ld)
		s.mu.Unlock()
	}
	return ld, err
}
