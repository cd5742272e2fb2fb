package node

import (
	"sync"
	"sync/atomic"
	"time"
)

// Stats are the counters of an epoch or of a run. Samples, batches and waits are this rank's; reads and memory are
// the engine's.
type Stats struct {
	Samples, Batches, BytesDelivered int64
	Padded, Skipped                  int64
	Redirected                       int64 // samples that came from a chunk read whole
	Single                           int64 // samples read by themselves
	ChunksRead                       int64 // by this run
	ChunkHits                        int64 // chunks that were in memory already
	Reads, BytesRead                 int64 // requests to storage: chunks, tables, single samples
	SingleReads, SingleBytes         int64 // of those: tables and single samples
	Retries, Rereads                 int64 // repeated after a failure; after a wrong checksum
	Resident, ResidentPeak           int64 // bytes
	PeerBytesIn, PeerBytesOut        int64 // of samples as stored: that came from other nodes and were used; that were sent
	PeerSamples                      int64 // that other nodes were to send
	PeerLate                         int64 // of those: not there when they were asked for
	PeerFallback                     int64 // of those: read from storage instead
	Wait, WaitStorage, WaitPeer      time.Duration
	WaitDecode                       time.Duration
}

// leastHunger is how long a trainer has waited for storage before anything is concluded from it.
const leastHunger = 50 * time.Millisecond

// counters are a run's own; cheap enough to be always on.
type counters struct {
	samples, batches, bytes, padded, skipped, single atomic.Int64
	wait, waitStorage, waitPeer, waitDecode          atomic.Int64

	first, firstWait atomic.Int64 // when the first batch was delivered (Unix ns), and what had been waited for storage by then

	peerIn, peerOut, incoming, peerLate, peerFallback atomic.Int64

	mu    sync.Mutex
	base  Stats // when the epoch began
	epoch uint64
}

// startEpoch begins to count an epoch. What was read ahead for it counts as its own.
func (c *counters) startEpoch(r *Run, ahead *early) {
	total := r.total()
	if ahead != nil {
		total.subtractEarly(r, ahead)
	}
	c.mu.Lock()
	c.base = total
	c.mu.Unlock()
}

func (s *Stats) subtractEarly(r *Run, e *early) {
	for _, t := range e.took {
		if t.landed {
			n := r.eng.source.Room(uint32(t.open.Chunk))
			s.ChunksRead--
			s.Reads--
			s.BytesRead -= n
		} else {
			s.ChunkHits--
		}
	}
}

func (c *counters) delivered(j *job, b *Batch) {
	bytes := uint64(0)
	for k := range b.Fields {
		bytes += b.Fields[k].Need
	}
	c.samples.Add(int64(j.n))
	c.batches.Add(1)
	c.bytes.Add(int64(bytes))
	c.padded.Add(int64(j.padded))
	if c.first.Load() == 0 {
		c.firstWait.Store(c.waitStorage.Load())
		c.first.Store(time.Now().UnixNano())
	}
}

// waited attributes a caller's wait: up to the job's last waits for storage and for other nodes to those, the rest to
// assembly.
func (c *counters) waited(j *job, begin, end time.Time) {
	all := end.Sub(begin)
	upto := func(at int64) time.Duration { return min(max(0, time.Duration(at-begin.UnixNano())), all) }
	storage, peer := upto(j.lastStorage.Load()), upto(j.lastPeer.Load())
	if w := j.waits.Load(); w != nil && w.peer {
		peer = all
	} else if w != nil {
		storage = all
	}
	if peer > storage {
		peer -= storage
	} else {
		storage -= peer
	}
	c.wait.Add(int64(all))
	c.waitStorage.Add(int64(storage))
	c.waitPeer.Add(int64(peer))
	c.waitDecode.Add(int64(all - storage - peer))
}

// starves says whether the trainer spends a large part of its time, the first batch's left out, waiting for storage.
func (c *counters) starves() bool {
	first := c.first.Load()
	if first == 0 {
		return false
	}
	waited, all := c.waitStorage.Load()-c.firstWait.Load(), time.Now().UnixNano()-first
	return waited > int64(leastHunger) && waited > all/4
}

// countIncoming counts, once, an incoming sample that its owner has sent.
func (r *Run) countIncoming(o *op, late time.Duration, bytes int) {
	if o.came {
		return
	}
	o.came = true
	r.punctual.came(late)
	r.counts.peerIn.Add(int64(bytes))
}

// countFetch counts a sample read by itself.
func (p *pass) countFetch() {
	if p != nil {
		p.run.counts.single.Add(1)
	}
}

// Stats returns the counters of the current epoch and of the whole run.
func (r *Run) Stats() (epoch, total Stats) {
	total = r.total()
	r.counts.mu.Lock()
	base := r.counts.base
	r.counts.mu.Unlock()
	epoch = total.minus(base)
	r.mu.Lock()
	if r.early != nil {
		epoch.subtractEarly(r, r.early)
	}
	r.mu.Unlock()
	return epoch, total
}

func (r *Run) total() Stats {
	c, src, set := &r.counts, r.eng.source.Counters(), r.eng.set.Counters()
	landed, hits := r.user.Taken()
	used, peak, _ := r.eng.Memory()
	s := Stats{
		Samples: c.samples.Load(), Batches: c.batches.Load(), BytesDelivered: c.bytes.Load(),
		Padded: c.padded.Load(), Skipped: c.skipped.Load(), Single: c.single.Load(),
		ChunksRead: landed, ChunkHits: hits,
		Reads: src.Lands + src.Ranges, BytesRead: src.LandBytes + src.RangeBytes,
		SingleReads: src.Ranges, SingleBytes: src.RangeBytes, Retries: src.Retries, Rereads: set.Rereads,
		Resident: used, ResidentPeak: peak,
		PeerBytesIn: c.peerIn.Load(), PeerBytesOut: c.peerOut.Load(), PeerSamples: c.incoming.Load(), PeerLate: c.peerLate.Load(),
		PeerFallback: c.peerFallback.Load(),
		Wait:         time.Duration(c.wait.Load()), WaitStorage: time.Duration(c.waitStorage.Load()),
		WaitPeer: time.Duration(c.waitPeer.Load()), WaitDecode: time.Duration(c.waitDecode.Load()),
	}
	s.Redirected = max(0, s.Samples-s.Single)
	return s
}

// minus is what was counted since base; memory is not a count.
func (s Stats) minus(b Stats) Stats {
	s.Samples -= b.Samples
	s.Batches -= b.Batches
	s.BytesDelivered -= b.BytesDelivered
	s.Padded -= b.Padded
	s.Skipped -= b.Skipped
	s.Redirected -= b.Redirected
	s.Single -= b.Single
	s.ChunksRead -= b.ChunksRead
	s.ChunkHits -= b.ChunkHits
	s.Reads -= b.Reads
	s.BytesRead -= b.BytesRead
	s.SingleReads -= b.SingleReads
	s.SingleBytes -= b.SingleBytes
	s.Retries -= b.Retries
	s.Rereads -= b.Rereads
	s.Wait -= b.Wait
	s.WaitStorage -= b.WaitStorage
	s.WaitPeer -= b.WaitPeer
	s.WaitDecode -= b.WaitDecode
	s.PeerBytesIn -= b.PeerBytesIn
	s.PeerBytesOut -= b.PeerBytesOut
	s.PeerSamples -= b.PeerSamples
	s.PeerLate -= b.PeerLate
	s.PeerFallback -= b.PeerFallback
	return s
}
