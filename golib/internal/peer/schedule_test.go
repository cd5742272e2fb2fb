package peer_test

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redox-loader/redox/golib/internal/exchange"
	"github.com/redox-loader/redox/golib/internal/peer"
	"github.com/redox-loader/redox/golib/internal/peer/peertest"
)

var oneSeed = flag.Uint64("seed", 0, "run only this schedule of TestSchedules")

// TestSchedules lets random things happen to random clusters. REDOX_SCHEDULES says how many; a failing one is repeated by
// go test -run TestSchedules -seed N.
func TestSchedules(t *testing.T) {
	n, first := 100, uint64(1)
	if testing.Short() || raceEnabled {
		n = 30
	}
	if many, err := strconv.Atoi(os.Getenv("REDOX_SCHEDULES")); err == nil {
		n = many
	}
	if *oneSeed != 0 {
		n, first = 1, *oneSeed
	}
	var sum tally
	for seed := first; seed < first+uint64(n); seed++ {
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newSchedule(t, seed).run(&sum) })
		})
		if !ok {
			t.Fatalf("repeat this schedule: go test -run TestSchedules ./golib/internal/peer -seed %d", seed)
		}
	}
	t.Logf("%d schedules: %+v", n, sum)
	if n >= 100 && (sum.Here == 0 || sum.Lost == 0 || sum.Late == 0 || sum.Useless == 0 || sum.Sent == 0 || sum.Unsent == 0) {
		t.Error("the schedules do not reach what they are for")
	}
}

// tally is what happened in all schedules.
type tally struct{ Here, Lost, Late, Useless, Sent, Unsent, Faults, Restarts int }

// schedule is one random history.
type schedule struct {
	*cluster
	random *rand.Rand // of the one who lets things happen
	seed   uint64
	credit int

	mu     sync.Mutex
	actors []*actor
	tally  tally
	live   atomic.Int64 // ranks that have not ended yet
}

func newSchedule(t *testing.T, seed uint64) *schedule {
	r := rand.New(rand.NewPCG(seed, 2))
	ranks := make([]int, 2+r.IntN(3))
	for i := range ranks {
		ranks[i] = 1 + r.IntN(2)
	}
	link := peertest.Link{Delay: time.Duration(r.IntN(3000)) * time.Microsecond}
	if r.IntN(2) == 0 {
		link.Loss = r.Float64() * 0.03
		link.Jitter = time.Duration(r.IntN(3000)) * time.Microsecond
	}
	j := newJob(seed, ranks, 100+r.IntN(400), []int{0, 50, 2000, 20000}[r.IntN(4)])
	return &schedule{cluster: newCluster(t, j, peertest.NewNetwork(seed, link)), random: r, seed: seed,
		credit: 2 + r.IntN(30)}
}

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

func (s *schedule) run(sum *tally) {
	var wg sync.WaitGroup
	s.begin(&wg, 0, len(s.job.ranks))
	s.faults(&wg) // until all actors have ended
	wg.Wait()
	for _, a := range s.actors {
		a.lane.Close()
	}
	for _, m := range s.meshes {
		for _, stats := range m.Stats() {
			s.tally.Useless += int(stats.Useless)
		}
	}
	s.close()
	synctest.Wait()
	for _, a := range s.actors {
		a.mu.Lock()
		for key, n := range a.given {
			if n != 1 {
				s.t.Errorf("rank %d: Done of sample %d was called %d times", a.rank, key, n)
			}
		}
		if len(a.given) != a.queued {
			s.t.Errorf("rank %d: Done was called for %d of %d samples", a.rank, len(a.given), a.queued)
		}
		a.mu.Unlock()
	}
	for node, l := range s.logs {
		for _, line := range l.all() {
			if strings.Contains(line, "broke the protocol") || strings.Contains(line, "checksum") {
				s.t.Errorf("node %d: %s", node, line)
			}
		}
	}
	time.Sleep(time.Minute) // nothing is left that runs
	sum.Here += s.tally.Here
	sum.Lost += s.tally.Lost
	sum.Late += s.tally.Late
	sum.Useless += s.tally.Useless
	sum.Sent += s.tally.Sent
	sum.Unsent += s.tally.Unsent
	sum.Faults += s.tally.Faults
	sum.Restarts += s.tally.Restarts
}

// begin starts the actors of some nodes.
func (s *schedule) begin(wg *sync.WaitGroup, from, to int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rank := 0
	for node, n := range s.job.ranks {
		for i := range n {
			if node >= from && node < to {
				a := &actor{schedule: s, rank: rank, wake: make(chan struct{}, 1), gone: make(chan struct{}), given: map[uint64]int{},
					random: rand.New(rand.NewPCG(s.seed, uint64(1000+100*len(s.actors)+rank)))}
				a.open(s.meshes[node])
				s.actors = append(s.actors, a)
				s.live.Add(1)
				wg.Go(func() {
					a.pull()
					s.live.Add(-1)
				})
				if i == 0 {
					wg.Go(a.push)
				}
			}
			rank++
		}
	}
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

// faults lets things happen until the actors have ended, and mends everything.
func (s *schedule) faults(wg *sync.WaitGroup) {
	restarts := 0
	for s.live.Load() > 0 {
		time.Sleep(time.Duration(s.random.IntN(800)) * time.Millisecond)
		node := s.random.IntN(len(s.meshes))
		host := peertest.Host(node + 1)
		lasts := time.Duration(s.random.IntN(4000)) * time.Millisecond
		s.count(func(t *tally) { t.Faults++ })
		switch s.random.IntN(6) {
		case 0:
			s.network.Cut(host, true)
			time.Sleep(lasts)
			s.network.Cut(host, false)
		case 1:
			s.network.Freeze(host)
			time.Sleep(lasts)
			s.network.Thaw(host)
		case 2:
			one := peertest.Host(s.random.IntN(len(s.meshes)) + 1) // one direction of one link
			s.network.Set(one, host, peertest.Link{Cut: true})
			time.Sleep(lasts)
			s.network.Set(one, host, peertest.Link{Delay: time.Millisecond})
		case 3:
			if restarts < 2 {
				restarts++
				s.replace(wg, node)
			}
		}
	}
}

// replace kills a node and starts it again, from the beginning of the lane.
func (s *schedule) replace(wg *sync.WaitGroup, node int) {
	s.count(func(t *tally) { t.Restarts++ })
	s.mu.Lock()
	for _, a := range s.actors {
		if a.job.node(a.rank) == node {
			select {
			case <-a.gone:
			default:
				close(a.gone)
			}
		}
	}
	s.mu.Unlock()
	s.kill(node)
	time.Sleep(time.Duration(s.random.IntN(3000)) * time.Millisecond)
	config := s.configs[node]
	config.Incarnation = uint64(time.Now().UnixMicro())
	m, err := peer.Listen(config)
	if err != nil {
		s.t.Error(err)
		return
	}
	s.meshes[node] = m
	s.begin(wg, node, node+1)
	cards := s.cards()
	s.random.Shuffle(len(cards), func(i, j int) { cards[i], cards[j] = cards[j], cards[i] })
	for _, other := range slices.Backward(s.meshes) {
		if err := other.Meet(cards); err != nil {
			s.t.Error(err)
		}
		time.Sleep(time.Duration(s.random.IntN(300)) * time.Millisecond)
	}
}
