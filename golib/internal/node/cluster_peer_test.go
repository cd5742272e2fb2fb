package node

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redox-loader/redox/golib/internal/peer/peertest"
	"github.com/redox-loader/redox/golib/internal/plan"
)

// TestOverQUIC: whole clusters over the real protocol. Every rank gets its share, and without faults every chunk is read
// once by one node.
func TestOverQUIC(t *testing.T) {
	d := write(t, fixedShape(t, 3000, 20, 1000))
	for _, nodes := range [][]int{{1, 1}, {1, 1, 1}, {2, 1, 3}, {1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1}} {
		for _, loss := range []float64{0, 0.01} {
			t.Run(fmt.Sprint(nodes, loss), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := faultSetup(t, d, nodes...)
					s.world.Pad = plan.PadNone
					s.real = peertest.NewNetwork(1, peertest.Link{Delay: 5 * time.Millisecond, Loss: loss})
					c := newCluster(t, d, s)
					for epoch := range uint64(2) {
						c.epoch(epoch, 0)
						chunks, singles := c.reads()
						if all := int64(len(d.index.Entries)); epoch == 0 && chunks != all || chunks > all || loss == 0 && singles > 0 {
							t.Errorf("epoch %d: %d chunks read of %d, %d samples by themselves", epoch, chunks, all, singles)
						}
						if epoch == 0 {
							measured(t, fmt.Sprintf("reads/nodes=%d", len(nodes)), float64(chunks+singles)/float64(len(d.index.Entries)), "reads/chunk")
						}
					}
					t.Logf("%+v", c.peers())
					c.close()
				})
			})
		}
	}
}

// TestFaultsOverQUIC: a node that is cut off, frozen or slow at some moment does not change what the others get.
func TestFaultsOverQUIC(t *testing.T) {
	d := write(t, fixedShape(t, 3000, 20, 1000))
	host := peertest.Host(3)
	faults := map[string]func(n *peertest.Network){
		"cut off": func(n *peertest.Network) { n.Cut(host, true) },
		"frozen": func(n *peertest.Network) {
			n.Freeze(host)
			time.Sleep(3 * time.Second)
			n.Thaw(host)
		},
		"slow": func(n *peertest.Network) {
			n.Set(host, peertest.Host(1), peertest.Link{Delay: 5 * time.Millisecond, Rate: 125_000})
		},
		"flapping": func(n *peertest.Network) {
			for range 5 {
				n.Cut(host, true)
				time.Sleep(60 * time.Millisecond)
				n.Cut(host, false)
				time.Sleep(60 * time.Millisecond)
			}
		},
	}
	for name, f := range faults {
		for _, at := range []time.Duration{0, 110 * time.Millisecond, 330 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s at %v", name, at), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := faultSetup(t, d, 1, 1, 1)
					s.real = peertest.NewNetwork(1, peertest.Link{Delay: 5 * time.Millisecond})
					c := newCluster(t, d, s)
					var event sync.WaitGroup
					event.Go(func() {
						time.Sleep(at)
						f(s.real)
					})
					c.epoch(0, 0)
					event.Wait()
					most := 150 * time.Millisecond
					if name == "slow" {
						most = 5 * time.Second
					}
					for rank := range 2 {
						_, s := c.runs[rank].Stats()
						measured(t, "waits/"+strings.ReplaceAll(name, " ", "-")+"-quic", s.WaitPeer.Seconds(), "s")
						if s.WaitPeer > most {
							t.Errorf("rank %d waited %v for peers", rank, s.WaitPeer)
						}
					}
					t.Logf("%+v", c.peers())
					s.real.Cut(host, false)
					c.close()
				})
			})
		}
	}
}
