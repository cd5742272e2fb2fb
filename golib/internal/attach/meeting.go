package attach

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"time"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// meeting is how the server comes to know the other nodes: through what their training processes already share, which
// the server itself cannot reach (docs/attached.md). So it asks a client to carry its card there and to bring back those
// of all nodes. One client at a time has that turn. The others wait for what comes of it, or for the turn: a client
// gives it back at the latest with the end of its connection. Guarded by server.mu.
type meeting struct {
	busy    bool
	round   int           // that began last
	ended   int           // that came to an end last, with failure or without
	failure error         // of that one
	changed chan struct{} // closed and renewed when the turn is free
}

// couldNot stands in MEET for the time to wait: the cards could not be had, and a failure follows.
const couldNot = math.MaxUint64

// whoMeets answers a client that is about to begin a pass: with the card, if it is to meet the others, or DONE.
func (c *client) whoMeets() (answer, error) {
	if ended, err := c.takeTurn(); ended || err != nil {
		return answer{kind: done}, err
	}
	s := c.server
	s.opening.Lock()
	var card []byte
	var err error
	if s.data != nil {
		card, err = s.data.Card(c.rank)
	}
	s.opening.Unlock()
	if err != nil || card == nil {
		s.mu.Lock()
		c.giveTurn()
		s.mu.Unlock()
		return answer{kind: done}, err
	}
	return answer{kind: yourCard, body: card}, nil
}

// takeTurn waits for the turn; ended says that another client has met the other nodes meanwhile.
func (c *client) takeTurn() (ended bool, err error) {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &s.meeting
	limit := time.NewTimer(3 * s.timeout) // for the cards, for the connections, and some time for each
	defer limit.Stop()
	awaited := 0
	for m.busy {
		awaited = m.round
		changed := m.changed
		s.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-c.gone:
			err = errOver()
		case <-limit.C:
			err = fault.New(fault.TimedOut, "another process of this node did not come to an end with meeting the other nodes")
		}
		s.mu.Lock()
		if err != nil {
			return false, err
		}
		if m.ended == awaited {
			return true, m.failure
		}
	}
	if c.left {
		return false, errOver()
	}
	m.busy, c.meets = true, true
	m.round++
	return false, nil
}

// giveTurn lets others try, if this client had the turn. server.mu is held.
func (c *client) giveTurn() {
	if c.meets {
		m := &c.server.meeting
		c.meets, m.busy = false, false
		close(m.changed)
		m.changed = make(chan struct{})
	}
}

// meet takes what the client brings: milliseconds to wait until all are connected, and the cards of all nodes.
func (c *client) meet(body []byte) (answer, error) {
	s := c.server
	s.mu.Lock()
	meets, data, patience := c.meets, s.data, s.timeout
	s.mu.Unlock()
	if !meets || len(body) < 8 {
		return answer{}, fault.New(fault.Invalid, "MEET of a client that was not asked to")
	}
	wait, cards := binary.LittleEndian.Uint64(body), body[8:]
	var err, failure error
	if wait == couldNot {
		failure = failureOf(cards)
	} else {
		err = data.Meet(cards, min(time.Duration(min(wait, 1<<40))*time.Millisecond, patience))
		failure = err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.meeting.ended, s.meeting.failure = s.meeting.round, failure
	c.giveTurn()
	return answer{kind: done}, err
}

// failureOf is why a client could not get the cards.
func failureOf(text []byte) error {
	var f struct {
		Status  int    `json:"status"`
		Message string `json:"message"`
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return fault.New(fault.Invalid, "MEET: %v", err)
	}
	return fault.New(fault.Kind(f.Status), "%s", f.Message)
}
