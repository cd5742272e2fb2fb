package node

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redox-loader/redox/golib/internal/exchange"
	"github.com/redox-loader/redox/golib/internal/exchange/exchangetest"
	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/peer"
	"github.com/redox-loader/redox/golib/internal/peer/peertest"
	"github.com/redox-loader/redox/golib/internal/plan"
	"github.com/redox-loader/redox/golib/internal/store"
	"github.com/redox-loader/redox/golib/internal/store/storetest"
)

// memoryFiles are a data set's shards in memory.
type memoryFiles [][]byte

func (d *dataset) files(t testing.TB) memoryFiles {
	t.Helper()
	var files memoryFiles
	for _, s := range d.manifest.Shards {
		b, err := os.ReadFile(filepath.Join(d.dir, s.Name))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, b)
	}
	return files
}

func (m memoryFiles) ReadAt(_ context.Context, file uint32, off int64, dst []byte, _ bool) (int, store.How, error) {
	if off >= int64(len(m[file])) {
		return 0, store.Plain, nil
	}
	return copy(dst, m[file][off:]), store.Plain, nil
}

func (m memoryFiles) Hint(uint32, int64, int64)   {}
func (m memoryFiles) Around(uint32, int64, int64) {}
func (m memoryFiles) Done(uint32, int64, int64)   {}
func (m memoryFiles) Name(file uint32) string     { return fmt.Sprintf("shard-%d", file) }
func (m memoryFiles) Close() error                { return nil }

// setup is what a cluster is made of.
type setup struct {
	plan     *plan.Plan
	world    plan.World
	prefetch int
	limit    int64         // of each node; 0: plenty; < 0: the least
	storage  time.Duration // of every read
	delay    time.Duration // between nodes
	timeout  time.Duration
	slice    time.Duration                       // of which calls into memory of their own are made, as Python does; 0: one for all
	pace     func(rank, batch int) time.Duration // of the trainers between two batches; nil: none
	skip     bool
	real     *peertest.Network // connections of package peer over this; nil: a fake exchange
}

// cluster is the nodes of a world in one process.
type cluster struct {
	t       *testing.T
	data    *dataset
	setup   setup
	net     *exchangetest.Network
	meshes  []*peer.Mesh
	nodes   []*Engine
	storage []*storetest.Faulty
	runs    []*Run // by rank
	limits  []int64
}

func newCluster(t *testing.T, d *dataset, s setup) *cluster {
	t.Helper()
	if s.timeout == 0 {
		s.timeout = time.Minute
	}
	c := &cluster{t: t, data: d, setup: s}
	c.connect()
	files := d.files(t)
	rank := 0
	for node, ranks := range s.world.Nodes {
		f := &storetest.Faulty{Files: files, Delay: s.storage}
		c.storage = append(c.storage, f)
		cfg := RunConfig{Plan: s.plan, World: s.world, Rank: rank, Prefetch: s.prefetch, Timeout: s.timeout, SkipErrors: s.skip,
			MaxSkipped: 100, Exchange: c.exchange(node)}
		reader := NewReader(store.NewFlat(f, extents{&d.index}), d.schema, &d.index, 0)
		limit := s.limit
		if limit <= 0 {
			least, good, err := reader.Needed(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if limit = int64(ranks) * least; s.limit == 0 {
				limit = int64(ranks)*good + 1<<20
			}
		}
		e, err := NewEngine(reader, limit, func(string, string) {})
		if err != nil {
			t.Fatal(err)
		}
		reader.Close()
		t.Cleanup(e.Close)
		c.nodes, c.limits = append(c.nodes, e), append(c.limits, limit)
		for range ranks {
			if s.limit < 0 {
				cfg.Prefetch = min(cfg.Prefetch, 1)
			}
			cfg.Rank = rank
			r, err := e.NewRun(cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(r.Close)
			c.runs = append(c.runs, r)
			rank++
		}
	}
	return c
}

// connect makes the nodes' exchange. With package peer it waits until all are connected, as who starts a run does.
func (c *cluster) connect() {
	nodes := c.setup.world.Nodes
	if c.setup.real == nil {
		c.net = exchangetest.New(len(nodes), c.setup.delay)
		c.t.Cleanup(c.net.Close)
		return
	}
	var cards []peer.Card
	for node := range nodes {
		m, err := peer.Listen(peer.Config{
			Node: node, Nodes: len(nodes), Ranks: nodes, Listen: net.JoinHostPort(peertest.Host(node+1), "0"), Socket: c.setup.real.Listen,
		})
		if err != nil {
			c.t.Fatal(err)
		}
		c.meshes, cards = append(c.meshes, m), append(cards, m.Card())
	}
	c.t.Cleanup(func() {
		var all sync.WaitGroup
		for _, m := range c.meshes {
			all.Go(m.Close)
		}
		all.Wait()
		time.Sleep(time.Minute) // of virtual time: what QUIC still has to say
	})
	for _, m := range c.meshes {
		if err := m.Meet(cards); err != nil {
			c.t.Fatal(err)
		}
	}
	for _, m := range c.meshes {
		if err := m.Await(20 * time.Second); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *cluster) exchange(node int) exchange.Exchange {
	if c.setup.real != nil {
		return c.meshes[node]
	}
	return c.net.Node(node)
}

// due is what a rank gets of an epoch from a position on, by the plan alone.
func (c *cluster) due(epoch uint64, from int64, rank int) (numbers []int64) {
	c.t.Helper()
	p := c.setup.plan
	deal, err := p.Epoch(epoch).Deal(c.setup.world, from)
	if err != nil {
		c.t.Fatal(err)
	}
	for b, ok := deal.Next(); ok; b, ok = deal.Next() {
		for _, it := range b.Ranks[rank] {
			n := p.Number(b.Picks[it.Pos].Chunk, b.Picks[it.Pos].Sample)
			if it.Pad && c.setup.world.Pad == plan.PadMark {
				n = -1 - n
			}
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// train is one rank's epoch; it stops early after so many batches if that is not negative.
func (c *cluster) train(rank int, epoch uint64, from int64, batches int) (numbers []int64, err error) {
	r := c.runs[rank]
	if err := r.Start(epoch, from); err != nil {
		return nil, err
	}
	for i := 0; i != batches; i++ {
		if c.setup.pace != nil {
			time.Sleep(c.setup.pace(rank, i))
		}
		b, done, err := c.next(r, rank)
		if err != nil || done {
			return numbers, err
		}
		numbers = append(numbers, b...)
	}
	return numbers, nil
}

// next delivers a batch, acquired or, where no slot has room or there are none, into memory of its own.
func (c *cluster) next(r *Run, rank int) (numbers []int64, done bool, err error) {
	if c.setup.prefetch > 0 {
		var b Batch
		s, err := r.Acquire(&b, -1)
		if err == nil {
			defer s.Release()
			return c.checked(&b), false, nil
		}
		if ended(err) {
			return nil, true, nil
		}
		if fault.KindOf(err) != fault.Range {
			return nil, false, err
		}
	}
	b := c.data.memory(c.setup.world.BatchSize, r.rec)
	begin, slice := time.Now(), c.setup.slice
	if slice == 0 {
		slice = -1
	}
	for {
		err = r.Next(&b, slice)
		if slice < 0 || fault.KindOf(err) != fault.TimedOut || time.Since(begin) > c.setup.timeout {
			break
		}
		b = c.data.memory(c.setup.world.BatchSize, r.rec) // what was in it is not to be relied on
	}
	if ended(err) {
		return nil, true, nil
	}
	if err != nil {
		return nil, false, err
	}
	return c.checked(&b), false, nil
}

func (c *cluster) checked(b *Batch) []int64 {
	c.data.check(c.t, b)
	return slices.Clone(b.Index[:b.N])
}

// epoch lets all ranks train at once and compares what each gets with the plan.
func (c *cluster) epoch(epoch uint64, from int64) {
	c.t.Helper()
	var all sync.WaitGroup
	for rank := range c.runs {
		all.Go(func() { c.rankEpoch(rank, epoch, from) })
	}
	all.Wait()
	c.checkMemory()
}

func (c *cluster) rankEpoch(rank int, epoch uint64, from int64) {
	got, err := c.train(rank, epoch, from, -1)
	if err != nil {
		c.t.Errorf("rank %d: %v", rank, err)
	} else if want := c.due(epoch, from, rank); !slices.Equal(got, want) {
		c.t.Errorf("rank %d got %d samples of %d in epoch %d from %d, or in another order", rank, len(got), len(want), epoch, from)
	}
}

func (c *cluster) checkMemory() {
	c.t.Helper()
	for node, e := range c.nodes {
		if _, peak, _ := e.Memory(); peak > c.limits[node] {
			c.t.Errorf("node %d: peak %d of %d", node, peak, c.limits[node])
		}
	}
}

// reads are the chunks that all nodes have read for the epoch, and the samples read by themselves and tables so far.
func (c *cluster) reads() (chunks, singles int64) {
	for _, r := range c.runs {
		epoch, _ := r.Stats()
		chunks += epoch.ChunksRead
	}
	for _, e := range c.nodes {
		singles += e.source.Counters().Ranges
	}
	return chunks, singles
}

// peers sums the counters of the exchange over all ranks, of the whole run.
func (c *cluster) peers() (sum Stats) {
	for _, r := range c.runs {
		_, s := r.Stats()
		sum.PeerBytesIn += s.PeerBytesIn
		sum.PeerBytesOut += s.PeerBytesOut
		sum.PeerSamples += s.PeerSamples
		sum.PeerLate += s.PeerLate
		sum.PeerFallback += s.PeerFallback
		sum.WaitPeer += s.WaitPeer
		sum.Samples += s.Samples
	}
	return sum
}

func (c *cluster) close() {
	for _, r := range c.runs {
		r.Close()
	}
}

func steady(d time.Duration) func(int, int) time.Duration {
	return func(int, int) time.Duration { return d }
}

// TestEveryRankGetsItsShare: worlds of all sizes, odd ones too, with several ranks on a node: each rank gets exactly
// what the plan says, in order, the bytes are right, and every chunk is read once by one node.
func TestEveryRankGetsItsShare(t *testing.T) {
	shapes := map[string]shape{"fixed": fixedShape(t, 1203, 17, 60), "variable": variableShape(t, 803, 13), "mixed": mixedShape(t, 603, 11)}
	worlds := [][]int{{1, 1}, {3, 1, 2}, {1, 1, 1, 1, 1}, {2, 2}, {1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1}}
	if testing.Short() {
		worlds = worlds[:3]
	}
	for name, s := range shapes {
		d := write(t, s)
		for _, nodes := range worlds {
			for _, x := range []plan.Exchange{{Mode: plan.Local}, {Mode: plan.Uniform}, {Fraction: 0.3}} {
				t.Run(fmt.Sprintf("%s/%v/%v", name, nodes, x), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						c := newCluster(t, d, setup{
							plan:     d.plan(t, plan.Spec{Seed: 5, Shuffle: true, Window: 24, Partitions: 8}),
							world:    plan.World{Nodes: nodes, BatchSize: 10, Pad: plan.PadNone, Exchange: x},
							prefetch: 2, storage: time.Millisecond, delay: 2 * time.Millisecond, pace: steady(5 * time.Millisecond),
						})
						for epoch := range uint64(2) {
							c.epoch(epoch, 0)
							chunks, singles := c.reads()
							if all := int64(len(d.index.Entries)); epoch == 0 && chunks != all || chunks > all || singles > 0 {
								t.Errorf("epoch %d: %d chunks read of %d, %d samples by themselves", epoch, chunks, all, singles)
							}
						}
						c.close()
					})
				})
			}
		}
	}
}
