package node

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redox-loader/redox/golib/internal/peer/peertest"
	"github.com/redox-loader/redox/golib/internal/plan"
)

// TestSchedules throws worlds, memory, paces and faults together, each from a seed. REDOX_SEED=n replays one,
// REDOX_SCHEDULES=n runs so many.
func TestSchedules(t *testing.T) {
	data := []*dataset{write(t, fixedShape(t, 1203, 17, 300)), write(t, variableShape(t, 903, 13)), write(t, mixedShape(t, 703, 11))}
	first, n := uint64(1), uint64(60)
	if s := os.Getenv("REDOX_SEED"); s != "" {
		first, _ = strconv.ParseUint(s, 10, 64)
		n = 1
	} else if s := os.Getenv("REDOX_SCHEDULES"); s != "" {
		n, _ = strconv.ParseUint(s, 10, 64)
	} else if testing.Short() {
		n = 15
	}
	for seed := first; seed < first+n; seed++ {
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { schedule(t, data, seed) })
		})
		if !ok {
			t.Fatalf("replay it with REDOX_SEED=%d", seed)
		}
	}
}

// disturb does to a host of the real protocol's network what a schedule does to a node of the fake one.
func (c *cluster) disturb(host string, kind int, frozen time.Duration, done <-chan struct{}) {
	n := c.setup.real
	switch kind {
	case 1, 2, 3:
		n.Freeze(host)
		select {
		case <-time.After(frozen):
		case <-done:
		}
		n.Thaw(host)
	case 4:
		for other := range c.nodes {
			n.Set(host, peertest.Host(other+1), peertest.Link{Delay: time.Millisecond, Rate: 20_000})
		}
	case 5:
		for range 6 {
			n.Cut(host, true)
			time.Sleep(30 * time.Millisecond)
			n.Cut(host, false)
			time.Sleep(40 * time.Millisecond)
		}
	}
}

// drawn is a cluster as the random numbers will have it.
func drawn(t *testing.T, d *dataset, rng *rand.Rand, seed uint64) setup {
	var nodes []int
	for range []int{2, 3, 5, 8}[rng.IntN(4)] {
		nodes = append(nodes, 1+rng.IntN(3)*rng.IntN(2))
	}
	x := []plan.Exchange{{Mode: plan.Local}, {Mode: plan.Uniform}, {Fraction: 0.4}}[rng.IntN(3)]
	pace := time.Duration(rng.IntN(15)) * time.Millisecond
	uneven := rng.IntN(2)
	s := setup{
		plan:     d.plan(t, plan.Spec{Seed: seed, Shuffle: true, Window: 8 + rng.IntN(20), Partitions: 1 + rng.IntN(12), Sticky: rng.IntN(2) == 0}),
		world:    plan.World{Nodes: nodes, BatchSize: 1 + rng.IntN(24), DropLast: rng.IntN(3) == 0, Pad: plan.Pad(rng.IntN(3)), Exchange: x},
		prefetch: rng.IntN(4), storage: time.Duration(rng.IntN(4)) * time.Millisecond, delay: time.Duration(rng.IntN(8)) * time.Millisecond,
		limit: []int64{-1, 0}[rng.IntN(2)],
		pace:  func(rank, batch int) time.Duration { return pace * time.Duration(1+(rank*7+batch*3)%(1+3*uneven)) },
	}
	if rng.IntN(4) == 0 {
		s.real = peertest.NewNetwork(seed, peertest.Link{
			Delay: s.delay, Jitter: time.Duration(rng.IntN(3)) * time.Millisecond, Loss: float64(rng.IntN(3)) * 0.01,
		})
	}
	return s
}

// strike does to a node, whose links are not sockets, what disturb does to one whose are.
func (c *cluster) strike(victim, kind int, frozen time.Duration, done <-chan struct{}) {
	switch kind {
	case 1, 2:
		c.net.Kill(victim, kind == 1)
	case 3:
		c.net.Freeze(victim, true)
		select {
		case <-time.After(frozen):
		case <-done:
		}
		c.net.Freeze(victim, false)
	case 4:
		for other := range c.nodes {
			c.net.Slow(victim, other, 20_000)
		}
	case 5:
		for range 6 {
			c.net.Freeze(victim, true)
			time.Sleep(30 * time.Millisecond)
			c.net.Freeze(victim, false)
			time.Sleep(40 * time.Millisecond)
		}
	}
}

// schedule is one cluster's life.
func schedule(t *testing.T, data []*dataset, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 11))
	d := data[rng.IntN(len(data))]
	s := drawn(t, d, rng, seed)
	c := newCluster(t, d, s)
	victim := rng.IntN(len(s.world.Nodes))
	done := make(chan struct{})
	var events sync.WaitGroup
	kind, when := rng.IntN(7), time.Duration(rng.IntN(600))*time.Millisecond
	dead, frozen := kind == 1 || kind == 2, time.Duration(rng.IntN(4000))*time.Millisecond
	events.Go(func() {
		select {
		case <-time.After(when):
		case <-done:
			return
		}
		if s.real != nil {
			c.disturb(peertest.Host(victim+1), kind, frozen, done)
		} else {
			c.strike(victim, kind, frozen, done)
		}
	})
	from := int64(0)
	for epoch := range uint64(2) {
		if rng.IntN(3) == 0 {
			from = rng.Int64N(s.plan.Size() + 1)
		}
		if rng.IntN(4) == 0 { // all break, and begin anew
			var all sync.WaitGroup
			for rank := range c.runs {
				all.Go(func() {
					if _, err := c.train(rank, epoch, from, 1+rank%3); err != nil && !dead {
						t.Errorf("rank %d: %v", rank, err)
					}
				})
			}
			all.Wait()
		}
		c.epoch(epoch, from)
		from = 0
	}
	close(done)
	events.Wait()
	c.close()
	for node, e := range c.nodes {
		e.mu.Lock()
		if e.reserved != (demand{}) || e.slots.Live() != 0 {
			t.Errorf("node %d: reserved %+v, %d bytes of slots after all runs were closed", node, e.reserved, e.slots.Live())
		}
		e.mu.Unlock()
	}
}
