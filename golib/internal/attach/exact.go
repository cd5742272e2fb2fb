package attach

import (
	"encoding/binary"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/node"
)

// Samples by number (READ), whatever the epochs do. A batch of them is a loan like any other, but no pass's: what a
// worker that is gone has given away, and nobody took in, is taken back when others need the room.

// reading is what the server reads samples by number with.
type reading struct {
	Exact
	arena uint64
	room  chan struct{} // closed and renewed when memory came back; guarded by server.mu
}

// exact returns the server's reading, which the first call makes.
func (s *Server) exact() (*reading, error) {
	s.opening.Lock()
	defer s.opening.Unlock()
	s.mu.Lock()
	rd := s.reading
	s.mu.Unlock()
	if rd != nil {
		return rd, nil
	}
	made, err := s.data.Exact()
	if err != nil {
		return nil, err
	}
	var file unix.Stat_t
	fd, _ := made.Memory()
	if err := unix.Fstat(int(fd), &file); err != nil {
		made.Close()
		return nil, fault.Wrap(fault.Internal, err, "identify the memory of batches")
	}
	rd = &reading{Exact: made, arena: file.Ino, room: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading = rd
	return rd, nil
}

// read handles READ: which worker of how many it is, then stored numbers; or none, if they are in a file.
func (c *client) read(r *reader, file *os.File) (answer, error) {
	listed, err := storedNumbers(file)
	if err != nil {
		return answer{}, err
	}
	worker, workers, numbers, err := parseRead(r, listed)
	if err != nil {
		return answer{}, err
	}
	rd, err := c.server.exact()
	if err != nil {
		return answer{}, err
	}
	if c.pass != nil {
		return answer{}, fault.New(fault.Invalid, "READ on the connection of an iteration")
	}
	c.server.mu.Lock()
	c.trainer.rank(c.rank) // for those who look
	c.worker, c.reads, c.made = worker, workers, 0
	c.server.mu.Unlock()
	l, copied, err := c.server.readExactly(c, rd, numbers, workers)
	if err != nil {
		return answer{}, err
	}
	body := encodeBatch(l)
	return answer{kind: batch, body: binary.LittleEndian.AppendUint64(body, l.keeping(copied))}, nil
}

// parseRead takes READ's body apart. listed are the numbers of the file that came with it, if one did.
func parseRead(r *reader, listed []int64) (worker, workers int, numbers []int64, err error) {
	worker, workers = int(r.u32()), int(r.u32())
	for len(r.body) > 0 && !r.short {
		numbers = append(numbers, r.i64())
	}
	if err := r.err(); err != nil {
		return 0, 0, nil, err
	}
	if listed != nil && numbers == nil {
		numbers = listed
	} else if listed != nil {
		numbers = nil // twice
	}
	if len(numbers) == 0 || workers < 1 || workers > 1<<16 || worker >= workers {
		return 0, 0, nil, fault.New(fault.Invalid, "READ of %d samples by worker %d of %d", len(numbers), worker, workers)
	}
	return worker, workers, numbers, nil
}

// readExactly reads samples and makes the client the holder of their batch.
func (s *Server) readExactly(c *client, rd *reading, numbers []int64, workers int) (l *loan, copied bool, err error) {
	s.mu.Lock()
	until := time.Now().Add(s.timeout)
	s.mu.Unlock()
	x, err := rd.Look(numbers, time.Until(until))
	if err != nil {
		return nil, false, err
	}
	scarce, err := s.makeRoom(c, rd, x, workers, until)
	if err != nil {
		return nil, false, err
	}
	result, err := rd.Fill(x, c.rank, max(0, time.Until(until)))
	s.mu.Lock()
	defer s.mu.Unlock()
	rd.announce()
	if err != nil {
		return nil, false, err
	}
	l = &loan{result: result, batch: *result.Batch(), arena: rd.arena, reading: rd, maker: c}
	l.batch.Epoch = noEpoch
	s.loans.add(l)
	l.hold(c)
	if c.left {
		for l.drop(c) {
		}
		s.free(l)
		return nil, false, errOver()
	}
	return l, scarce, nil
}

// noEpoch is the epoch of samples that were read by number.
const noEpoch = ^uint64(0)

// makeRoom takes the memory for samples. The memory that a worker copies from is always left, so this waits for other
// workers only, never for the trainer. scarce: the client must copy the batch and give it back.
func (s *Server) makeRoom(c *client, rd *reading, x *node.Exact, workers int, until time.Time) (scarce bool, err error) {
	limit := time.NewTimer(time.Until(until))
	defer limit.Stop()
	for {
		s.mu.Lock()
		room := rd.room
		s.mu.Unlock()
		ok, scarce, err := rd.Room(x, workers)
		if err != nil || ok && !scarce {
			return scarce, err
		}
		s.mu.Lock()
		reclaimed := s.reclaimExact(rd)
		s.mu.Unlock()
		if ok && !reclaimed {
			return scarce, nil
		}
		if reclaimed {
			if ok {
				x.Drop()
			}
			continue
		}
		select {
		case <-room:
		case <-c.gone:
			return false, errOver()
		case <-limit.C:
			return false, fault.New(fault.TimedOut, "samples that are read by number have no memory: other workers don't give back theirs")
		}
	}
}

// allocateExact is allocate for a client that reads by number. mu is held.
func (s *Server) allocateExact(c *client, size int64) (*loan, error) {
	rd := s.reading
	c.made += size
	pool := c.made * int64(slotsAhead(c.reads))
	result := rd.NewResult(size, pool)
	if result == nil && s.reclaimExact(rd) {
		result = rd.NewResult(size, pool)
	}
	if result == nil {
		return nil, errNoRoom(size)
	}
	l := &loan{result: result, arena: rd.arena, reading: rd, maker: c}
	l.batch.Epoch = noEpoch
	s.loans.add(l)
	l.hold(c)
	return l, nil
}

func errNoRoom(size int64) error { return fault.New(fault.Range, "no room for %d bytes", size) }

// reclaimExact takes back what workers that are gone have given away, and nobody took in. mu is held.
func (s *Server) reclaimExact(rd *reading) (any bool) {
	for _, l := range s.loans.all {
		if l != nil && l.reading == rd && len(l.holders) == 0 && l.maker.left {
			s.free(l)
			any = true
		}
	}
	return any
}

// announce wakes those who wait for memory. server.mu is held.
func (rd *reading) announce() {
	close(rd.room)
	rd.room = make(chan struct{})
}

// keeps says whether those who keep batches have as many as the others can spare; l is one more. mu is held.
func (s *Server) keeps(l *loan) bool {
	kept := 0
	for _, other := range s.loans.all {
		if other != nil && other.reading == l.reading && other.kept() {
			kept++
		}
	}
	return kept > 2*l.maker.reads+2
}

// counts handles COUNTS: what exact reading did for the client's rank.
func (c *client) counts() (answer, error) {
	s := c.server
	s.mu.Lock()
	rd := s.reading
	s.mu.Unlock()
	if rd == nil {
		return answer{kind: text, body: []byte("{}")}, nil
	}
	body, err := rd.Stats(c.rank)
	return answer{kind: text, body: body}, err
}
