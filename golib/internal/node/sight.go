package node

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Sight is what an engine, and a run on it, do at one moment: for people who look, and for the log after a stall.
type Sight struct {
	Memory  MemorySight `json:"memory"`
	Storage Counts      `json:"storage"`
	Reads   []ReadSight `json:"reads"`  // in flight, the oldest first
	Queued  int         `json:"queued"` // reads that wait for their turn
	Run     RunSight    `json:"run"`
}

// MemorySight is in bytes.
type MemorySight struct {
	Used     int64 `json:"used"`
	Peak     int64 `json:"peak"`
	Limit    int64 `json:"limit"`
	Chunks   int64 `json:"chunks"`   // in use by chunks
	Batches  int64 `json:"batches"`  // in use by batches
	Reserved int64 `json:"reserved"` // for all runs
}

// Counts are of an engine's storage since it began.
type Counts struct {
	Reads int64 `json:"reads"`
	Bytes int64 `json:"bytes"`
}

// ReadSight is a read in flight.
type ReadSight struct {
	Chunk   uint32  `json:"chunk"`
	Shard   uint32  `json:"shard"`
	File    string  `json:"file"`
	Bytes   int     `json:"bytes"`
	Whole   bool    `json:"whole"` // chunk; else a part of it
	Seconds float64 `json:"seconds"`
}

// RunSight is a run.
type RunSight struct {
	Rank     int        `json:"rank"`
	Epoch    uint64     `json:"epoch"`
	Position int64      `json:"position"` // behind the last batch delivered
	Size     int64      `json:"size"`     // positions of an epoch
	Waits    string     `json:"waits"`    // what the next batch waits for; empty: for nothing
	Jobs     []JobSight `json:"jobs"`     // made and not delivered, in order
	Slots    int        `json:"slots"`    // in all
	Free     int        `json:"free"`     // of them
	Held     int64      `json:"held"`     // bytes of chunks that the run holds
}

// JobSight is a batch on its way.
type JobSight struct {
	Batch   uint64  `json:"batch"`
	State   string  `json:"state"`
	Waits   string  `json:"waits"`
	Seconds float64 `json:"seconds"` // for which it has waited
}

func (s state) String() string {
	return [...]string{"not begun", "being assembled", "ready", "larger than the free slots"}[s]
}

// Sight looks at the run and its engine. It never waits for storage.
func (r *Run) Sight() Sight {
	s := r.eng.Sight()
	s.Run = r.sight()
	return s
}

// Sight looks at the engine, and at no run.
func (e *Engine) Sight() Sight {
	used, peak, limit := e.Memory()
	e.mu.Lock()
	reserved := e.reserved.total()
	e.mu.Unlock()
	src := e.source.Counters()
	s := Sight{
		Memory: MemorySight{
			Used: used, Peak: peak, Limit: limit, Chunks: e.chunks.Live(), Batches: e.slots.Live(), Reserved: reserved,
		},
		Storage: Counts{Reads: src.Lands + src.Ranges, Bytes: src.LandBytes + src.RangeBytes},
	}
	reads, queued := e.queue.Reads()
	s.Queued = queued
	for _, q := range reads {
		s.Reads = append(s.Reads, ReadSight{
			Chunk: q.Chunk, Shard: e.index.Entries[q.Chunk].Shard, File: e.source.Name(q.Chunk), Bytes: q.Bytes, Whole: q.Whole,
			Seconds: time.Since(q.Since).Seconds(),
		})
	}
	slices.SortFunc(s.Reads, func(a, b ReadSight) int { return cmp.Compare(b.Seconds, a.Seconds) })
	return s
}

func (r *Run) sight() RunSight {
	s := RunSight{Rank: r.cfg.Rank, Size: r.cfg.Plan.Size(), Held: r.user.Pinned()}
	if r.cfg.Prefetch > 0 {
		s.Slots = r.Slots()
	}
	s.Waits, _ = r.waits()
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Position, s.Free = r.position, r.slots
	if r.pass == nil {
		return s
	}
	s.Epoch = r.pass.epoch
	for _, j := range r.pass.queue {
		look := JobSight{Batch: j.step, State: j.state.String()}
		if w := j.waits.Load(); w != nil {
			look.Waits, look.Seconds = w.what, time.Since(w.since).Seconds()
		}
		s.Jobs = append(s.Jobs, look)
	}
	return s
}

// waits says what the next batch waits for, and where: the number of a chunk, or -1. Empty: it waits for nothing.
func (r *Run) waits() (text string, chunk int64) {
	r.mu.Lock()
	p := r.pass
	var j *job
	if p != nil && len(p.queue) > 0 {
		j = p.queue[0]
	}
	r.mu.Unlock()
	if j == nil {
		return "", -1
	}
	chunk = -1
	if w := j.waits.Load(); w != nil {
		text = fmt.Sprintf("batch %d of epoch %d has waited %.1f s for %s", j.step, p.epoch, time.Since(w.since).Seconds(), w.what)
		chunk = int64(w.chunk)
	}
	if b := r.user.Blocked(); b != nil && text != "" {
		text += fmt.Sprintf("; no memory for chunk %d for %.1f s", b.Chunk, time.Since(b.Since).Seconds())
	}
	return text, chunk
}

// idle says how far the next batch is, though it waits for nothing that is known.
func (r *Run) idle() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pass == nil || len(r.pass.queue) == 0 {
		return ""
	}
	j := r.pass.queue[0]
	return fmt.Sprintf("batch %d of epoch %d is %s", j.step, r.pass.epoch, j.state)
}

// Lines say the same for a log.
func (s *Sight) Lines() []string {
	m, r := &s.Memory, &s.Run
	lines := []string{
		fmt.Sprintf("memory: %s of %s in use (chunks %s, batches %s), at most %s so far; %s reserved", mib(m.Used), mib(m.Limit),
			mib(m.Chunks), mib(m.Batches), mib(m.Peak), mib(m.Reserved)),
		fmt.Sprintf("storage: %d reads so far, %d in flight, %d wait for their turn", s.Storage.Reads, len(s.Reads), s.Queued),
	}
	for _, q := range s.Reads {
		part := "all"
		if !q.Whole {
			part = "a part"
		}
		lines = append(lines, fmt.Sprintf("  read %s of chunk %d, shard %d (%s): %d bytes, for %.1f s", part, q.Chunk, q.Shard, q.File,
			q.Bytes, q.Seconds))
	}
	lines = append(lines, fmt.Sprintf("rank %d: epoch %d, %d of %d positions given out; %d of %d slots free; holds %s of chunks", r.Rank,
		r.Epoch, r.Position, r.Size, r.Free, r.Slots, mib(r.Held)))
	if r.Waits != "" {
		lines = append(lines, "  "+r.Waits)
	}
	for _, j := range r.Jobs {
		line := fmt.Sprintf("  batch %d: %s", j.Batch, j.State)
		if j.Waits != "" {
			line += fmt.Sprintf(", has waited %.1f s for %s", j.Seconds, j.Waits)
		}
		lines = append(lines, line)
	}
	return lines
}

func mib(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }
