package plan

import (
	"cmp"
	"slices"
)

// Open says by when a chunk must be in memory.
type Open struct {
	Position  int64 // the first position, from the one where Opens began, that takes a sample from it
	Chunk     ChunkID
	Partition uint16
	Left      uint32 // samples that it still gives from there on; fewer than Count if it was open before
}

// Opens lists the chunks of an epoch by the position at which they are first needed. It runs ahead of a Walk by draws
// alone, without the orders inside the chunks: some 4 ns a sample, O(window) memory. Not for concurrent use.
type Opens struct {
	epoch   *Epoch
	streams []stream
	again   []opening          // chunks that were open at the beginning, by position; the first is the next
	fresh   turnHeap[slotView] // of each partition, the next chunk of its queue, by round
	segment int
	rank    []int // of each turn: how many have their turn before it in a round of the segment
}

type opening = turnItem[slotView]

// slotView is what Opens tells about a slot.
type slotView struct {
	chunk ChunkID
	left  uint32
}

// Opens returns the openings from a position on, first needed first. Chunks that are open at that position, with less
// than all of their samples left, come among the others at the position where they are needed again.
func (e *Epoch) Opens(from int64) *Opens {
	w := &Walk{epoch: e, streams: newStreams(e), active: make([]*stream, 0, len(e.parts))}
	w.seek(max(0, from))
	o := &Opens{epoch: e, streams: w.streams, rank: make([]int, len(e.parts))}
	for j := range o.streams {
		o.again = append(o.again, o.streams[j].reopenings(uint16(j))...)
		if next, ok := o.streams[j].nextOpening(uint16(j)); ok {
			o.fresh = append(o.fresh, next)
		}
	}
	slices.SortFunc(o.again, func(a, b opening) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.turn, b.turn))
	})
	o.fresh.order()
	o.enter(w.segment)
	return o
}

// Next returns the next opening, false after the last.
func (o *Opens) Next() (Open, bool) {
	var next opening
	switch {
	case len(o.again) > 0 && (len(o.fresh) == 0 || o.again[0].before(&o.fresh[0])):
		next, o.again = o.again[0], o.again[1:]
	case len(o.fresh) > 0:
		next = o.fresh[0]
		if following, ok := o.streams[next.turn].nextOpening(next.turn); ok {
			o.fresh[0] = following
			o.fresh.sink(0)
		} else {
			o.fresh.drop()
		}
	default:
		return Open{}, false
	}
	return Open{
		Position:  o.position(next.key, next.turn),
		Chunk:     next.value.chunk,
		Partition: o.epoch.parts[next.turn].partition,
		Left:      next.value.left,
	}, true
}

// position returns the position of a partition's turn in a round. Rounds must not descend from call to call.
func (o *Opens) position(round int64, turn uint16) int64 {
	segments := o.epoch.segments
	if at := o.segment; round >= segments[at+1].round {
		for round >= segments[at+1].round {
			at++
		}
		o.enter(at)
	}
	s := segments[o.segment]
	return s.position + (round-s.round)*int64(s.active) + int64(o.rank[turn])
}

// enter makes a segment the current one.
func (o *Opens) enter(segment int) {
	o.segment = segment
	active := 0
	for j := range o.epoch.parts {
		o.rank[j] = active
		if o.epoch.parts[j].takesPart(o.epoch.segments[segment]) {
			active++
		}
	}
}

// nextOpening advances to the next chunk of the queue and takes its first sample; false if there is none.
func (s *stream) nextOpening(turn uint16) (opening, bool) {
	for len(s.queue) > 0 {
		if v := s.run(s.part.samples - s.step); v != nil {
			return opening{s.part.start + s.step - 1, turn, slotView{v.chunk, v.left + 1}}, true
		}
	}
	return opening{}, false
}

// reopenings returns when each chunk that is open now gives its next sample. It looks ahead on a copy of the stream.
func (s *stream) reopenings(turn uint16) []opening {
	waiting := make(map[ChunkID]uint32, len(s.open))
	for _, v := range s.open {
		if v.left > 0 {
			waiting[v.chunk] = v.left
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	ahead := *s
	ahead.open = append(make([]slot, 0, cap(s.open)), s.open...)
	found := make([]opening, 0, len(waiting))
	for len(waiting) > 0 {
		v := ahead.draw()
		if left, ok := waiting[v.chunk]; ok {
			found = append(found, opening{s.part.start + ahead.step, turn, slotView{v.chunk, left}})
			delete(waiting, v.chunk)
		}
		v.left--
		ahead.step++
	}
	return found
}
