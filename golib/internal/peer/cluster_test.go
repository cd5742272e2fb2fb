package peer_test

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redox-loader/redox/golib/internal/exchange"
	"github.com/redox-loader/redox/golib/internal/peer"
	"github.com/redox-loader/redox/golib/internal/peer/peertest"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// job is a small stand-in for a plan: global positions, the node that owns each and the rank that gets it.
type job struct {
	ranks   []int
	owner   []int // by position
	to      []int // rank, by position
	largest int
	seed    uint64
}

// newJob deals positions to owners and ranks at random.
func newJob(seed uint64, ranks []int, positions, largest int) *job {
	r := rand.New(rand.NewPCG(seed, 1))
	all := 0
	for _, n := range ranks {
		all += n
	}
	j := &job{ranks: ranks, largest: largest, seed: seed}
	for range positions {
		j.owner = append(j.owner, r.IntN(len(ranks)))
		j.to = append(j.to, r.IntN(all))
	}
	return j
}

func (j *job) node(rank int) int {
	for node, n := range j.ranks {
		if rank < n {
			return node
		}
		rank -= n
	}
	panic("no such rank")
}

// sample is what lies at a position: its size and bytes are a function of the seed.
func (j *job) sample(position int64) exchange.Sample {
	r := rand.New(rand.NewPCG(j.seed, uint64(position)+1000))
	b := make([]byte, r.IntN(j.largest+1))
	for i := range b {
		b[i] = byte(uint64(position)*31 + uint64(i)*7 + j.seed)
	}
	prefix := 0
	if len(b) > 0 {
		prefix = r.IntN(len(b))
	}
	return exchange.Sample{Data: b, Prefix: uint32(prefix), Raw: uint64(2 * len(b)), CRC: crc32.Checksum(b, castagnoli)}
}

// incoming are the positions that a rank gets from other nodes.
func (j *job) incoming(rank int) (all []int64) {
	for p, to := range j.to {
		if to == rank && j.owner[p] != j.node(rank) {
			all = append(all, int64(p))
		}
	}
	return all
}

// cluster is the nodes of a job over a network in memory.
type cluster struct {
	t       testing.TB
	network *peertest.Network
	job     *job
	meshes  []*peer.Mesh
	configs []peer.Config
	logs    []*logbook
}

type logbook struct {
	mu    sync.Mutex
	lines []string
}

func (l *logbook) add(level, message string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf("%s %s: %s", time.Now().Format("05.000"), level, message))
}

func (l *logbook) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.lines...)
}

// newCluster starts all nodes and waits until they are connected.
func newCluster(t testing.TB, j *job, network *peertest.Network) *cluster {
	c := &cluster{t: t, network: network, job: j}
	for node := range j.ranks {
		l := &logbook{}
		c.logs = append(c.logs, l)
		c.configs = append(c.configs, peer.Config{Node: node, Nodes: len(j.ranks), Ranks: j.ranks,
			Listen: net.JoinHostPort(peertest.Host(node+1), "0"), Socket: network.Listen, Log: l.add})
		m, err := peer.Listen(c.configs[node])
		if err != nil {
			t.Fatal(err)
		}
		c.meshes = append(c.meshes, m)
	}
	c.meet()
	for node, m := range c.meshes {
		if err := m.Await(20 * time.Second); err != nil {
			t.Fatalf("node %d: %v", node, err)
		}
	}
	return c
}

func (c *cluster) cards() (all []peer.Card) {
	for _, m := range c.meshes {
		if m != nil {
			all = append(all, m.Card())
		}
	}
	return all
}

func (c *cluster) meet() {
	for _, m := range c.meshes {
		if m != nil {
			if err := m.Meet(c.cards()); err != nil {
				c.t.Fatal(err)
			}
		}
	}
}

func (c *cluster) close() {
	var wg sync.WaitGroup
	for _, m := range c.meshes {
		if m != nil {
			wg.Go(m.Close)
		}
	}
	wg.Wait()
	if c.t.Failed() {
		for node, l := range c.logs {
			for _, line := range l.all() {
				c.t.Logf("node %d: %s", node, line)
			}
		}
	}
}

// runner is one rank's part of a job over a lane: it expects, looks, and pushes for its node if it is the node's first
// rank. What is lost it counts, as if it read it from storage.
type runner struct {
	t     testing.TB
	job   *job
	rank  int
	lane  exchange.Lane
	wake  chan struct{}
	hedge time.Duration // after so long a sample is read elsewhere
	step  time.Duration // between two samples

	here, lost, late int
	given            atomic.Int64 // Done calls that are outstanding
	sent, unsent     atomic.Int64
}

func newRunner(t testing.TB, m *peer.Mesh, j *job, id exchange.ID, rank, credit int) *runner {
	r := &runner{t: t, job: j, rank: rank, wake: make(chan struct{}, 1), hedge: 100 * time.Millisecond}
	lane, err := m.Open(exchange.Config{ID: id, Rank: rank, Ranks: j.ranks, Credit: credit, Largest: j.largest, Notify: func() {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	r.lane = lane
	return r
}

// push queues everything that the runner's node owns for others.
func (r *runner) push() {
	node := r.job.node(r.rank)
	ordinals := map[int]uint64{}
	for p, to := range r.job.to {
		if r.job.node(to) == r.job.owner[p] {
			continue
		}
		n := ordinals[to]
		ordinals[to]++
		if r.job.owner[p] != node {
			continue
		}
		r.given.Add(1)
		called := false
		r.lane.Send(exchange.Outgoing{To: to, Ordinal: n, Position: int64(p), Sample: r.job.sample(int64(p)), Done: func(sent bool) {
			if called {
				r.t.Errorf("Done of position %d was called twice", p)
			}
			called = true
			if sent {
				r.sent.Add(1)
			} else {
				r.unsent.Add(1)
			}
			r.given.Add(-1)
		}})
	}
}

// pull takes the incoming samples in order.
func (r *runner) pull(credit int) {
	all := r.job.incoming(r.rank)
	expected := 0
	for n := range all {
		for expected < len(all) && expected < n+credit {
			r.lane.Expect(all[expected], r.job.owner[all[expected]])
			expected++
		}
		deadline := time.Now().Add(r.hedge)
		for {
			s, status := r.lane.Look(uint64(n))
			if status == exchange.Here {
				r.check(all[n], s)
				r.here++
				break
			}
			if status == exchange.Lost {
				r.lost++
				break
			}
			wait := time.Until(deadline)
			if wait <= 0 {
				r.late++
				break
			}
			timer := time.NewTimer(wait)
			select {
			case <-r.wake:
			case <-timer.C:
			}
			timer.Stop()
		}
		r.lane.Done(uint64(n) + 1)
		if r.step > 0 {
			time.Sleep(r.step)
		}
	}
}

func (r *runner) check(position int64, got exchange.Sample) {
	want := r.job.sample(position)
	if string(got.Data) != string(want.Data) || got.Prefix != want.Prefix || got.Raw != want.Raw || got.CRC != want.CRC {
		r.t.Errorf("rank %d: wrong sample at position %d", r.rank, position)
	}
}

// String tells what became of the incoming samples.
func (r *runner) String() string {
	return fmt.Sprintf("rank %d: %d here, %d lost, %d late; sent %d, not %d", r.rank, r.here, r.lost, r.late, r.sent.Load(),
		r.unsent.Load())
}
