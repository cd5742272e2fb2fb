package attach

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// trainer is a process that trains. The server lives for its trainers and keeps what they will need next, whether or not
// one of their workers is attached just now.
type trainer struct {
	pid   int
	pidfd int
	ranks map[int]*rank
	bye   bool // it has said that it needs nothing more, but for what its connections hold
	gone  bool
}

// rank is what one trainer does as one rank. Guarded by server.mu.
type rank struct {
	number int
	cursor cursor
	passes []*pass   // that live, and some that are over: a worker may come too late
	free   []*served // loaders without a pass, the latest last
	last   *served   // of the pass that began last
	latest struct {  // that pass
		began int // how many there were
		epoch uint64
		start int64
		pass  *pass
	}
	skipped int64 // samples that clients left out
}

// cursor is which epoch the next pass is, and where in it it begins. What the user says comes with a serial number from
// copies of the data set object in many processes: the newest word counts, once.
type cursor struct {
	word
	known bool
}

func (c *cursor) tell(w word) {
	fresh := !c.known
	if fresh || w.serial > c.serial {
		c.word, c.known = w, true
	}
	if fresh && w.seen >= 0 {
		c.epoch, c.position, c.named = uint64(w.seen)+1, 0, false
	}
}

// heard is tell for a pass that has begun: its first worker said the same, perhaps under another number, as each worker
// of torchdata's loader loads a state of its own. It must not count for the next pass.
func (c *cursor) heard(w word) { c.serial = max(c.serial, w.serial) }

// begin is where a pass that begins now starts; the one after it is the next epoch.
func (c *cursor) begin(size int64) (epoch uint64, position int64) {
	epoch, position = c.epoch, min(c.position, size)
	if position == size && !c.named {
		epoch, position = epoch+1, 0
	}
	c.epoch, c.position, c.named = epoch+1, 0, false
	return epoch, position
}

// trainer returns the trainer with this pid, from now on watched. mu is held.
func (s *Server) trainer(pid int) (*trainer, error) {
	if t := s.trainers[pid]; t != nil {
		return t, nil
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "watch the training process %d", pid)
	}
	t := &trainer{pid: pid, pidfd: fd, ranks: map[int]*rank{}}
	s.trainers[pid] = t
	s.widen(pid)
	go s.watch(t)
	return t, nil
}

// watch waits for a trainer's end. It takes a thread, of which there are as many as ranks.
func (s *Server) watch(t *trainer) {
	fds := []unix.PollFd{{Fd: int32(t.pidfd), Events: unix.POLLIN}}
	for {
		if n, err := unix.Poll(fds, -1); n > 0 || err != nil && err != unix.EINTR {
			break
		}
	}
	s.lose(t)
}

// farewell lets a trainer that has said BYE go with its last connection. mu is held.
func (s *Server) farewell(t *trainer) {
	if t == nil || !t.bye {
		return
	}
	for c := range s.clients {
		if c.trainer == t {
			return
		}
	}
	go s.lose(t)
}

// lose ends everything that was there for a trainer; without any, the server stops.
func (s *Server) lose(t *trainer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.gone {
		return
	}
	t.gone = true
	delete(s.trainers, t.pid)
	for c := range s.clients {
		if c.trainer == t {
			c.conn.Close()
			s.forget(c)
		}
	}
	for _, r := range t.ranks {
		for _, p := range slices.Clone(r.passes) { // part prunes
			p.part()
		}
		for _, ld := range r.free {
			s.discard(ld)
		}
		r.free = nil
	}
	if len(s.trainers) == 0 {
		s.stop()
	}
}

// lastWords is how long a loader that nobody here needs any more goes on sending what other nodes want of it.
const lastWords = 10 * time.Second

// discard closes a loader. mu is held; closing waits for assembly, which does not need it.
func (s *Server) discard(ld *served) {
	if !ld.closed {
		ld.closed = true
		ld.Cancel()
		s.closing.Go(func() {
			_ = ld.Rest(lastWords) // the others can do without
			ld.Close()
		})
	}
}

// rank returns what the trainer does as this rank. mu is held.
func (t *trainer) rank(number int) *rank {
	r := t.ranks[number]
	if r == nil {
		r = &rank{number: number}
		t.ranks[number] = r
	}
	return r
}

const remembered = 64 // passes that are over

// prune forgets the oldest passes that are over. server.mu is held.
func (r *rank) prune() {
	over := 0
	for _, p := range r.passes {
		if p.over {
			over++
		}
	}
	r.passes = slices.DeleteFunc(r.passes, func(p *pass) bool {
		if p.over && over > remembered {
			over--
			return true
		}
		return false
	})
}
