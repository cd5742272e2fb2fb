package attach

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/node"
)

// A server's state at one moment. JSON of LOOK; docs/attached.md has it.
type sight struct {
	Pid      int              `json:"pid"`
	Instance string           `json:"instance"` // as text: JSON readers would round it
	Seconds  float64          `json:"seconds"`  // since it began
	Served   json.RawMessage  `json:"served"`   // path and options, or null
	Memory   node.MemorySight `json:"memory"`
	Storage  node.Counts      `json:"storage"`
	Reads    []node.ReadSight `json:"reads"`
	Ranks    []rankSight      `json:"ranks"`
}

type rankSight struct {
	Trainer  int             `json:"trainer"` // pid
	Rank     int             `json:"rank"`
	Passes   int             `json:"passes"` // that began
	Epoch    uint64          `json:"epoch"`
	Position int64           `json:"position"` // up to which batches were given to workers
	Size     int64           `json:"size"`     // positions of an epoch
	Workers  []workerSight   `json:"workers"`
	Waits    string          `json:"waits"`
	Lent     int             `json:"lent"` // batches in slots
	Stats    json.RawMessage `json:"stats"`
}

type workerSight struct {
	Pid     int     `json:"pid"`
	Worker  int     `json:"worker"`
	Batch   *uint64 `json:"batch"`   // that it waits for, by its number in the pass; or null
	Seconds float64 `json:"seconds"` // for which it has waited
}

// look answers LOOK. It takes no trainer, so that who looks keeps nothing alive.
func (s *Server) look() (answer, error) {
	out := sight{Pid: os.Getpid(), Instance: fmt.Sprintf("%016x", s.instance), Seconds: time.Since(s.began).Seconds()}
	s.mu.Lock()
	data, rd := s.data, s.reading
	loaders := s.loaders()
	views := s.views()
	s.mu.Unlock()
	if data != nil {
		out.Served = data.Info()
	}
	sights := map[*served]node.Sight{}
	arenas := map[uint64]bool{}
	for _, ld := range loaders {
		sights[ld] = ld.Sight()
		if !arenas[ld.arena] { // loaders of one engine have one memory
			arenas[ld.arena] = true
			out.add(sights[ld])
		}
	}
	if rd != nil && !arenas[rd.arena] {
		out.add(rd.Sight())
	}
	for _, v := range views {
		if v.loader == nil && rd != nil {
			if stats, err := rd.Stats(v.Rank); err == nil {
				v.Stats, _ = json.Marshal(map[string]json.RawMessage{"epoch": stats, "total": stats})
			}
		}
		if v.loader != nil {
			look := sights[v.loader]
			v.Position, v.Size = max(v.Position, look.Run.Position), look.Run.Size
			if v.Waits == "" {
				v.Waits = look.Run.Waits
			}
			if stats, err := v.loader.Stats(); err == nil {
				v.Stats, _ = v.skips.add(stats) // nil, which is null, where they are no JSON
			}
		}
		out.Ranks = append(out.Ranks, v.rankSight)
	}
	body, err := json.Marshal(out)
	if err == nil && len(body)+headSize > maxMessage {
		err = fault.New(fault.Range, "what this engine does takes %d bytes to say", len(body))
	}
	return answer{kind: text, body: body}, err
}

func (s *sight) add(n node.Sight) {
	s.Memory.Used += n.Memory.Used
	s.Memory.Peak += n.Memory.Peak
	s.Memory.Limit += n.Memory.Limit
	s.Memory.Chunks += n.Memory.Chunks
	s.Memory.Batches += n.Memory.Batches
	s.Memory.Reserved += n.Memory.Reserved
	s.Storage.Reads += n.Storage.Reads
	s.Storage.Bytes += n.Storage.Bytes
	s.Reads = append(s.Reads, n.Reads...)
}

// loaders are all that are open. mu is held.
func (s *Server) loaders() []*served {
	open := map[*served]struct{}{}
	for _, t := range s.trainers {
		for _, r := range t.ranks {
			for _, ld := range append(slices.Clone(r.free), r.last) {
				open[ld] = struct{}{}
			}
			for _, p := range r.passes {
				open[p.loader] = struct{}{}
			}
		}
	}
	delete(open, nil)
	maps.DeleteFunc(open, func(ld *served, _ struct{}) bool { return ld.closed })
	return slices.SortedFunc(maps.Keys(open), func(a, b *served) int { return cmp.Compare(a.rank, b.rank) })
}

// view is a rank as a look under the lock found it; what its loader does is asked without.
type view struct {
	rankSight
	loader *served
	skips  skips
}

// views looks at the ranks. mu is held.
func (s *Server) views() []view {
	var all []view
	for _, t := range s.trainers {
		for _, r := range t.ranks {
			v := view{rankSight: rankSight{
				Trainer: t.pid, Rank: r.number, Passes: r.latest.began, Epoch: r.latest.epoch, Position: r.latest.start,
			}, loader: r.last, skips: r.skips()}
			if v.loader != nil && v.loader.closed {
				v.loader = nil
			}
			for _, p := range r.passes {
				if !p.over && !p.retired {
					v.Waits = p.waits()
				}
				for c := range p.clients {
					v.Workers = append(v.Workers, c.sight())
				}
			}
			for c := range s.clients {
				if c.reads > 0 && c.trainer == t && c.rank == r.number {
					v.Workers = append(v.Workers, c.sight())
				}
			}
			slices.SortFunc(v.Workers, func(a, b workerSight) int { return cmp.Compare(a.Worker, b.Worker) })
			for _, l := range s.loans.all {
				if l != nil && l.of(t, r) {
					v.Lent++
				}
			}
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b view) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Trainer, b.Trainer))
	})
	return all
}

// sight looks at a client of a pass. mu is held.
func (c *client) sight() workerSight {
	w := workerSight{Pid: c.pid, Worker: c.worker}
	if !c.asks.since.IsZero() {
		number := c.asks.number
		w.Batch, w.Seconds = &number, time.Since(c.asks.since).Seconds()
	}
	return w
}

// waits says what a pass waits for, if that is not what its loader waits for. mu is held.
func (p *pass) waits() string {
	switch {
	case p.loader == nil:
		return "its loader to be made"
	case p.busy:
		return "" // the loader knows
	case p.loader.full:
		return p.slotsOut()
	}
	return fmt.Sprintf("workers to ask for batches; %d are ready", len(p.ready))
}
