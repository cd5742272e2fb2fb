package peer_test

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redox-loader/redox/golib/internal/exchange"
	"github.com/redox-loader/redox/golib/internal/peer"
)

// actor is one rank's part, with the model: what it knows must be true of each sample.
type actor struct {
	*schedule
	random *rand.Rand
	rank   int
	lane   exchange.Lane
	wake   chan struct{}
	gone   chan struct{} // its node was killed
	mu     sync.Mutex
	given  map[uint64]int // Done calls by position and rank
	queued int
}

func (a *actor) open(m *peer.Mesh) {
	lane, err := m.Open(exchange.Config{ID: exchange.ID{Epoch: 1}, Rank: a.rank, Ranks: a.job.ranks, Credit: a.credit,
		Largest: a.job.largest, Notify: func() {
			select {
			case a.wake <- struct{}{}:
			default:
			}
		}})
	if err != nil {
		a.t.Fatal(err)
	}
	a.lane = lane
}

// pause sleeps, sometimes; false if the actor's node is dead.
func (a *actor) pause(r *rand.Rand, most time.Duration) bool {
	if r.IntN(3) == 0 {
		time.Sleep(time.Duration(r.Int64N(int64(most))))
	}
	select {
	case <-a.gone:
		return false
	default:
		return true
	}
}

// push sends or skips what its node owns, and sheds now and then.
func (a *actor) push() {
	r := rand.New(rand.NewPCG(a.seed, uint64(a.rank)+77))
	node := a.job.node(a.rank)
	ordinals := map[int]uint64{}
	for p, to := range a.job.to {
		if a.job.node(to) == a.job.owner[p] {
			continue
		}
		n := ordinals[to]
		ordinals[to]++
		if a.job.owner[p] != node {
			continue
		}
		switch r.IntN(40) {
		case 0:
			a.lane.Skip(to, n)
			continue
		case 1:
			a.lane.Shed(int64(p) - int64(r.IntN(50)))
		}
		a.send(p, to, n)
		if !a.pause(r, 5*time.Millisecond) {
			return
		}
	}
}

func (a *actor) send(p, to int, n uint64) {
	a.mu.Lock()
	a.queued++
	a.mu.Unlock()
	sample := a.job.sample(int64(p))
	a.lane.Send(exchange.Outgoing{To: to, Ordinal: n, Position: int64(p), Sample: sample, Done: func(sent bool) {
		a.mu.Lock()
		a.given[uint64(p)]++
		a.mu.Unlock()
		for i := range sample.Data { // whoever still looks at it sees nonsense
			sample.Data[i] = 0xff
		}
		a.count(func(t *tally) {
			if sent {
				t.Sent++
			} else {
				t.Unsent++
			}
		})
	}})
}

func (s *schedule) count(add func(*tally)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	add(&s.tally)
}

// patience is how long a sample may neither come nor be lost: longer than a fault lasts and is noticed. There is no
// third thing that may become of it.
const patience = 20 * time.Second

// pull takes the incoming samples, and holds on to some of them for a while.
func (a *actor) pull() {
	all := a.job.incoming(a.rank)
	expected, done := 0, 0
	held := map[int]exchange.Sample{}
	impatient := a.random.IntN(3) == 0
	for n := 0; n < len(all); n++ {
		ahead := 1 + a.random.IntN(a.credit)
		for expected < len(all) && expected <= n+ahead && expected < done+a.credit {
			a.lane.Expect(all[expected], a.job.owner[all[expected]])
			expected++
		}
		wait := patience
		if impatient && a.random.IntN(4) == 0 {
			wait = time.Duration(a.random.IntN(3000)) * time.Microsecond
		}
		switch s, status := a.await(n, wait); status {
		case exchange.Here:
			want := a.job.sample(all[n])
			if !bytes.Equal(s.Data, want.Data) || s.CRC != want.CRC || s.Prefix != want.Prefix || s.Raw != want.Raw {
				a.t.Errorf("rank %d: sample %d is wrong", a.rank, n)
			}
			held[n] = s
			a.count(func(t *tally) { t.Here++ })
		case exchange.Lost:
			a.count(func(t *tally) { t.Lost++ })
		case exchange.Coming:
			if wait < patience { // it reads the sample elsewhere
				done = n + 1
				clear(held)
				a.lane.Done(uint64(done))
				a.count(func(t *tally) { t.Late++ })
				continue
			}
			a.t.Errorf("rank %d: nobody says what became of sample %d of node %d", a.rank, n, a.job.owner[all[n]])
		}
		if a.random.IntN(4) == 0 || n+1-done >= a.credit || n+1 == len(all) {
			done = a.release(all, held, done, n+1)
		}
		if !a.pause(a.random, 20*time.Millisecond) {
			return
		}
	}
}

// release is Done, after a last look: what was Here is as it was, and what was lost is still lost.
func (a *actor) release(all []int64, held map[int]exchange.Sample, from, to int) int {
	select {
	case <-a.gone:
		return to
	default:
	}
	if a.random.IntN(3) == 0 {
		to = from + 1 + a.random.IntN(to-from) // not everything yet
	}
	for n := from; n < to; n++ {
		s, was := held[n]
		if was && !bytes.Equal(s.Data, a.job.sample(all[n]).Data) {
			a.t.Errorf("rank %d: sample %d has changed while it was held", a.rank, n)
		}
		if _, status := a.lane.Look(uint64(n)); was != (status == exchange.Here) {
			a.t.Errorf("rank %d: sample %d was here: %v, and is in status %d", a.rank, n, was, status)
		}
		delete(held, n)
	}
	a.lane.Done(uint64(to))
	return to
}

func (a *actor) await(n int, wait time.Duration) (exchange.Sample, exchange.Status) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		s, status := a.lane.Look(uint64(n))
		if status != exchange.Coming {
			return s, status
		}
		select {
		case <-a.wake:
		case <-a.gone:
			return s, exchange.Lost
		case <-timer.C:
			return s, status
		}
	}
}
