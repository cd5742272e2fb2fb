package attach

import (
	"encoding/json"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// skips are the samples that clients have left out: what does not decode, and what a transform refuses, is known to the
// workers alone. They are counted here, so that a limit holds for all of them together and the trainer sees them.
type skips struct {
	epoch, total int64
}

// skips are those of a rank: in its latest pass, and in all. server.mu is held.
func (r *rank) skips() skips {
	s := skips{total: r.skipped}
	if r.latest.pass != nil {
		s.epoch = r.latest.pass.skipped
	}
	return s
}

// skip answers SKIPPED with how many there were in the client's pass; on a connection without one, in the rank's latest.
func (c *client) skip(b *reader) (answer, error) {
	n := b.i64()
	if err := b.err(); err != nil {
		return answer{}, err
	}
	if n < 0 {
		return answer{}, fault.New(fault.Invalid, "SKIPPED of %d samples", n)
	}
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	r := c.trainer.rank(c.rank)
	r.skipped += n
	p := c.pass
	if p == nil {
		p = r.latest.pass
	}
	sum := r.skipped
	if p != nil {
		p.skipped += n
		sum = p.skipped
	}
	body, err := json.Marshal(map[string]int64{"skipped": sum})
	return answer{kind: text, body: body}, err
}

// add adds them to a loader's counters.
func (k skips) add(stats []byte) ([]byte, error) {
	if k == (skips{}) {
		return stats, nil
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(stats, &all); err != nil {
		return nil, err
	}
	for name, more := range map[string]int64{"epoch": k.epoch, "total": k.total} {
		var one map[string]json.RawMessage
		var count int64
		if err := json.Unmarshal(all[name], &one); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(one["skipped"], &count); err != nil {
			return nil, err
		}
		one["skipped"], _ = json.Marshal(count + more) // numbers always fit
		all[name], _ = json.Marshal(one)
	}
	return json.Marshal(all)
}
