package attach

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"os"
	"time"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// dispatch does what a message asks for.
func (c *client) dispatch(m message, file *os.File) (answer, error) {
	if m.kind == look {
		return c.server.look()
	}
	if m.kind != hello && c.trainer == nil {
		return answer{}, fault.New(fault.Invalid, "the first message must be HELLO")
	}
	r := reader{body: m.body}
	switch m.kind {
	case hello:
		return c.hello(m.body, file)
	case begin:
		return c.begin(&r)
	case next:
		return c.next(&r)
	case read:
		return c.read(&r, file)
	case counts:
		return c.counts()
	case claim:
		return c.claim(&r)
	case allocate:
		return c.allocate(&r)
	case release:
		id, generation, tickets := r.u32(), r.u32(), r.i64()
		if r.err() == nil {
			c.server.release(c, id, generation, int(tickets))
		}
		return answer{}, nil
	case memory:
		return c.memory(&r)
	case set:
		return c.set(&r)
	case check:
		ld, err := c.loader()
		if err != nil {
			return answer{}, err
		}
		return answer{kind: done}, ld.Check(m.body)
	case status:
		return c.status()
	case origin:
		return c.origin(m.body)
	case whoMeets:
		return c.whoMeets()
	case meet:
		return c.meet(m.body)
	case lines:
		urgent := r.u64() != 0
		return c.lines(urgent), r.err()
	case skipped:
		return c.skip(&r)
	}
	return answer{}, fault.New(fault.Invalid, "message of unknown kind %d", m.kind)
}

func (c *client) hello(body []byte, file *os.File) (answer, error) {
	s := c.server
	var g greeting
	if err := json.Unmarshal(body, &g); err != nil {
		return answer{}, fault.New(fault.Invalid, "HELLO: %v", err)
	}
	if c.trainer != nil {
		return answer{}, fault.New(fault.Invalid, "HELLO came twice")
	}
	subset, err := storedNumbers(file)
	if err != nil {
		return answer{}, err
	}
	s.mu.Lock()
	t, err := s.trainer(g.Trainer)
	s.mu.Unlock()
	if err != nil {
		return answer{}, err
	}
	if err := s.prepare(g.Options, subset, time.Duration(g.Timeout*float64(time.Second))); err != nil {
		return answer{}, err
	}
	s.mu.Lock()
	t.bye = t.bye && len(g.Options) == 0
	c.trainer, c.rank = t, g.Rank
	s.mu.Unlock()
	a := answer{kind: welcome, body: numbers(uint64(os.Getpid()), s.instance)}
	if s.LogFile != nil {
		a.file = s.LogFile.Fd()
	}
	return a, nil
}

// storedNumbers reads the list that a file holds, as 64-bit integers.
func storedNumbers(file *os.File) ([]int64, error) {
	if file == nil {
		return nil, nil
	}
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fault.Wrap(fault.IO, err, "read the subset")
	}
	list := make([]int64, size/8)
	if err := binary.Read(io.NewSectionReader(file, 0, size), binary.LittleEndian, list); err != nil {
		return nil, fault.Wrap(fault.IO, err, "read the subset")
	}
	return list, nil
}

func (c *client) begin(r *reader) (answer, error) {
	key := passKey{base: r.u64(), nth: r.u64()}
	worker, workers := int(r.u32()), int(r.u32())
	birth, w := r.u64(), r.word()
	if err := r.err(); err != nil {
		return answer{}, err
	}
	if c.pass != nil || workers < 1 || worker >= workers || workers > 1<<16 {
		return answer{}, fault.New(fault.Invalid, "BEGIN of worker %d of %d does not fit this connection", worker, workers)
	}
	p, err := c.server.begin(c, key, worker, workers, birth, w)
	if err != nil {
		return answer{}, err
	}
	<-p.made
	if p.failure != nil {
		return answer{}, p.failure
	}
	fd, size := p.loader.Memory()
	return answer{
		kind: began, body: numbers(p.epoch, uint64(p.start), uint64(p.batches), p.loader.arena, uint64(size)), file: fd,
	}, nil
}

func (c *client) next(r *reader) (answer, error) {
	number := r.u64()
	if err := r.err(); err != nil {
		return answer{}, err
	}
	if c.pass == nil {
		return answer{}, fault.New(fault.Invalid, "NEXT before BEGIN")
	}
	c.server.mu.Lock()
	c.asks = asking{number, time.Now()}
	c.server.mu.Unlock()
	defer func() {
		c.server.mu.Lock()
		c.asks = asking{}
		c.server.mu.Unlock()
	}()
	return c.batch(c.pass.batch(c, number))
}

// batch is the answer to NEXT.
func (c *client) batch(l *loan, copied bool, err error) (answer, error) {
	if err != nil {
		switch fault.KindOf(err) {
		case fault.EndOfEpoch:
			c.server.mu.Lock()
			c.pass.end(c.worker)
			c.server.mu.Unlock()
		case fault.TimedOut:
			err = c.pass.stalled(err)
		}
		return answer{}, err
	}
	body := encodeBatch(l)
	return answer{kind: batch, body: append(body, numbers(l.keeping(copied))...)}, nil
}

func (c *client) claim(r *reader) (answer, error) {
	id, generation := r.u32(), r.u32()
	if err := r.err(); err != nil {
		return answer{}, err
	}
	l, copied, err := c.server.claim(c, id, generation)
	if err != nil {
		return answer{}, err
	}
	return answer{kind: claimed, body: numbers(l.keeping(copied), l.arena, l.batch.Epoch, l.batch.Step)}, nil
}

func (c *client) allocate(r *reader) (answer, error) {
	size := r.i64()
	if err := r.err(); err != nil {
		return answer{}, err
	}
	l, err := c.server.allocate(c, size)
	if err != nil {
		return answer{}, err
	}
	slot := uint64(l.id) | uint64(l.generation)<<32
	return answer{kind: allocated, body: numbers(slot, l.arena, uint64(l.result.Place()))}, nil
}

// keeping tells a holder of a batch what BATCH and CLAIMED say about that: 1, to copy it and give it back at once; 2, that
// its RELEASE may wait for the next request. Each worker and the trainer may then have one slot that nobody uses, so there
// must be as many as were wanted.
func (l *loan) keeping(copied bool) uint64 {
	switch {
	case copied:
		return 1
	case l.slot != nil && l.loader.Slots() > slotsAhead(l.pass.workers):
		return 2
	}
	return 0
}

func (c *client) memory(r *reader) (answer, error) {
	id := r.u64()
	if err := r.err(); err != nil {
		return answer{}, err
	}
	s := c.server
	s.mu.Lock()
	ld, rd := s.arenas[id], s.reading
	s.mu.Unlock()
	var fd uintptr
	var size int64
	switch {
	case rd != nil && rd.arena == id:
		fd, size = rd.Memory()
	case ld != nil:
		fd, size = ld.Memory()
	default:
		return answer{}, fault.New(fault.Invalid, "there is no memory %d", id)
	}
	return answer{kind: mapped, body: numbers(id, uint64(size)), file: fd}, nil
}

func (c *client) set(r *reader) (answer, error) {
	w := r.word()
	if err := r.err(); err != nil {
		return answer{}, err
	}
	c.server.mu.Lock()
	c.trainer.rank(c.rank).cursor.tell(w)
	c.server.mu.Unlock()
	return answer{kind: done}, nil
}

// loader returns one of the client's rank.
func (c *client) loader() (*served, error) {
	c.server.mu.Lock()
	r := c.trainer.rank(c.rank)
	c.server.mu.Unlock()
	return c.server.anyLoader(r)
}

// status says where the rank's passes are, what a state of it has in common with all others, and its counters.
func (c *client) status() (answer, error) {
	ld, err := c.loader()
	if err != nil {
		return answer{}, err
	}
	s := c.server
	s.mu.Lock()
	r := c.trainer.rank(c.rank)
	latest, cur, skips := r.latest, r.cursor, r.skips()
	s.mu.Unlock()
	state, err := ld.State(0, 0)
	if err != nil {
		return answer{}, err
	}
	stats, err := ld.Stats()
	if err == nil {
		stats, err = skips.add(stats)
	}
	if err != nil {
		return answer{}, err
	}
	body, err := json.Marshal(map[string]any{
		"passes": latest.began, "epoch": latest.epoch, "start": latest.start, "serial": cur.serial, "next_epoch": cur.epoch,
		"next_position": cur.position, "state": json.RawMessage(state), "stats": json.RawMessage(stats),
		"served": json.RawMessage(s.data.Info()),
	})
	return answer{kind: text, body: body}, err
}

func (c *client) origin(body []byte) (answer, error) {
	list := make([]int64, len(body)/8)
	if err := binary.Read(bytes.NewReader(body), binary.LittleEndian, list); err != nil {
		return answer{}, fault.New(fault.Invalid, "ORIGIN: %v", err)
	}
	sources, keys, err := c.server.data.Origin(list)
	if err != nil {
		return answer{}, err
	}
	reply, err := json.Marshal(map[string]any{"sources": sources, "keys": keys})
	return answer{kind: text, body: reply}, err
}

// sameOptions names an option in which two clients differ.
func sameOptions(have, got []byte) error {
	var a, b map[string]any
	for _, o := range []struct {
		text []byte
		into *map[string]any
	}{{have, &a}, {got, &b}} {
		d := json.NewDecoder(bytes.NewReader(o.text))
		d.UseNumber() // seeds have 64 bits
		if err := d.Decode(o.into); err != nil {
			return fault.New(fault.Invalid, "options: %v", err)
		}
	}
	return differing(a, b)
}

func differing(a, b map[string]any) error {
	for _, m := range []map[string]any{a, b} {
		for name := range m {
			x, y := a[name], b[name]
			inner, isMap := x.(map[string]any)
			other, both := y.(map[string]any)
			if isMap && both {
				if err := differing(inner, other); err != nil {
					return err
				}
				continue
			}
			was, _ := json.Marshal(x)
			is, _ := json.Marshal(y)
			if !bytes.Equal(was, is) {
				return fault.New(fault.Invalid, "%s=%s differs from %s=%s of another process of this job: all ranks and workers must "+
					"pass the same options", name, is, name, was)
			}
		}
	}
	return nil
}
