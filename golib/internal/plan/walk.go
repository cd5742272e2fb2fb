package plan

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Pick is what comes at one position of the global order.
type Pick struct {
	Chunk     ChunkID
	Sample    uint32 // its place within the chunk, as stored
	Partition uint16
	Last      bool // the chunk is used up by it
}

// Walk goes through the global order: rounds, in each of which every partition that takes part gives one sample, in the
// order of their turns. Not for concurrent use. Memory: 64 bytes for each open chunk and about 150 a partition.
type Walk struct {
	epoch    *Epoch
	streams  []stream  // in the order of turns
	active   []*stream // those that take part in the current segment, in the order of turns
	segment  int
	round    int64
	at       int // the next one of active
	position int64
}

// Walk returns a walk that begins at position from, moved into [0, Size]. It gets there by draws alone, in parallel
// over the partitions: about 4 ns a sample and core.
func (e *Epoch) Walk(from int64) *Walk {
	w := &Walk{epoch: e, streams: newStreams(e), active: make([]*stream, 0, len(e.parts))}
	w.seek(max(0, from))
	for j := range w.streams {
		w.streams[j].key()
	}
	return w
}

// Position returns the position of the next pick.
func (w *Walk) Position() int64 { return w.position }

// Next fills dst with the picks of the next positions and returns how many there were: fewer than len(dst) only at the
// end. It does not allocate.
func (w *Walk) Next(dst []Pick) int {
	n := 0
	for n < len(dst) && w.position+int64(n) < w.epoch.plan.size {
		if w.at == len(w.active) {
			w.nextRound()
		}
		turns := w.active[w.at:min(len(w.active), w.at+len(dst)-n)]
		for _, s := range turns {
			dst[n] = s.pick()
			n++
		}
		w.at += len(turns)
	}
	w.position += int64(n)
	return n
}

// skip moves n positions ahead, at most to the end, by draws alone.
func (w *Walk) skip(n int64) { w.seek(w.position + n) }

// nextRound goes to the next round that has samples.
func (w *Walk) nextRound() {
	w.at = 0
	w.round++
	for segments := w.epoch.segments; w.round == segments[w.segment+1].round; {
		w.enter(w.segment + 1)
		if len(w.active) > 0 {
			return
		}
		w.round = segments[w.segment+1].round // nobody takes part: on to the next
	}
}

// enter makes a segment the current one.
func (w *Walk) enter(segment int) {
	w.segment = segment
	w.active = w.active[:0]
	for j := range w.streams {
		if s := &w.streams[j]; s.part.takesPart(w.epoch.segments[segment]) {
			w.active = append(w.active, s)
		}
	}
}

// seek moves ahead to a position.
func (w *Walk) seek(position int64) {
	w.position = min(position, w.epoch.plan.size)
	w.enter(w.epoch.segmentOf(w.position))
	segment := w.epoch.segments[w.segment]
	w.round = segment.round
	w.at = 0
	if segment.active > 0 {
		w.round += (w.position - segment.position) / int64(segment.active)
		w.at = int((w.position - segment.position) % int64(segment.active))
	}
	steps := make([]int64, len(w.streams))
	for j := range w.streams {
		q := w.streams[j].part
		steps[j] = max(0, min(w.round-q.start, q.samples))
	}
	for j, done := 0, 0; done < w.at; j++ {
		if w.streams[j].part.takesPart(segment) { // had its turn in this round already
			steps[j]++
			done++
		}
	}
	advance(w.streams, steps)
}

// sequential is how many draws are not worth a goroutine.
const sequential = 1 << 15

// advance brings each stream to its step, in parallel where it is worth it. All goroutines have ended when it returns.
func advance(streams []stream, steps []int64) {
	var draws int64
	for j := range streams {
		draws += steps[j] - streams[j].step
	}
	var taken atomic.Int64
	work := func() {
		for {
			j := int(taken.Add(1)) - 1
			if j >= len(streams) {
				return
			}
			streams[j].skip(steps[j] - streams[j].step)
		}
	}
	helpers := min(runtime.GOMAXPROCS(0), len(streams)) - 1
	if draws < sequential {
		helpers = 0
	}
	var wg sync.WaitGroup
	for range helpers {
		wg.Go(work)
	}
	work()
	wg.Wait()
}
