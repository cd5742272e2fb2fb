package peer_test

import (
	"encoding/json"
	"errors"
	"net"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/peer"
	"github.com/redox-loader/redox/golib/internal/peer/peertest"
)

// pair is two nodes that may not want each other.
type pair struct {
	t       *testing.T
	network *peertest.Network
	meshes  [2]*peer.Mesh
	logs    [2]logbook
}

// newPair starts two nodes with configurations that change may change. Nobody has met yet.
func newPair(t *testing.T, change func(node int, c *peer.Config)) *pair {
	p := &pair{t: t, network: peertest.NewNetwork(1, peertest.Link{Delay: time.Millisecond})}
	for node := range 2 {
		c := peer.Config{Node: node, Nodes: 2, Ranks: []int{1, 1}, Listen: net.JoinHostPort(peertest.Host(node+1), "700"),
			Socket: p.network.Listen, Log: p.logs[node].add}
		if change != nil {
			change(node, &c)
		}
		m, err := peer.Listen(c)
		if err != nil {
			t.Fatal(err)
		}
		p.meshes[node] = m
	}
	return p
}

func (p *pair) meet(cards ...peer.Card) {
	p.t.Helper()
	for _, m := range p.meshes {
		if err := m.Meet(cards); err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p *pair) close() {
	for _, m := range p.meshes {
		m.Close()
	}
	time.Sleep(time.Minute)
}

// await waits on both nodes and returns what they got, and after how long.
func (p *pair) await(timeout time.Duration) (errs [2]error, after [2]time.Duration) {
	start := time.Now()
	done := make(chan struct{})
	for node, m := range p.meshes {
		go func() {
			errs[node] = m.Await(timeout)
			after[node] = time.Since(start)
			done <- struct{}{}
		}()
	}
	<-done
	<-done
	return errs, after
}

func token(t *testing.T, word string) peer.Identity {
	t.Helper()
	id, err := peer.Token([]byte(word))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// refused wants both nodes to end with an error of a kind that says something, soon.
func (p *pair) refused(kind fault.Kind, word string, soon time.Duration) {
	p.t.Helper()
	errs, after := p.await(time.Minute)
	for node, err := range errs {
		if err == nil || fault.KindOf(err) != kind || !strings.Contains(err.Error(), word) || after[node] > soon {
			p.t.Errorf("node %d after %v: %v", node, after[node], err)
		}
		stats := p.meshes[node].Stats()[1-node]
		if stats.Refused == 0 || stats.Connected || stats.Connects != 0 || p.meshes[node].Refused() == 0 {
			p.t.Errorf("node %d: %+v", node, stats)
		}
	}
	// It goes on trying, and says so once.
	time.Sleep(20 * time.Second)
	for node := range p.logs {
		if lines := p.logs[node].all(); len(lines) == 0 || len(lines) > 3 {
			p.t.Errorf("node %d has logged %d lines: %q", node, len(lines), lines)
		}
	}
}

func TestOtherPlanIsRefused(t *testing.T) {
	changes := map[string]func(*peer.Config){
		"same plan":     func(c *peer.Config) { c.Hash[0] = 1 },
		"how many node": func(c *peer.Config) { c.Ranks = []int{1, 2} },
	}
	for word, change := range changes {
		for odd := range 2 {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t, func(node int, c *peer.Config) {
					if node == odd {
						change(c)
					}
				})
				p.meet(p.meshes[0].Card(), p.meshes[1].Card())
				p.refused(fault.Invalid, word, time.Second)
				p.close()
			})
		}
	}
}

func TestOtherTokenIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		words := []string{"0123456789abcdef", "0123456789abcdeF"}
		p := newPair(t, func(node int, c *peer.Config) { c.Identity = token(t, words[node]) })
		p.meet(peer.Addresses([]string{peertest.Host(1) + ":700", peertest.Host(2) + ":700"})...)
		p.refused(fault.Peer, "token the same on all nodes", 5*time.Second)
		p.close()
	})
}

// TestOtherTokenThenSilence: that a node did not fit is told even if it has been silent since.
func TestOtherTokenThenSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		words := []string{"0123456789abcdef", "0123456789abcdeF"}
		p := newPair(t, func(node int, c *peer.Config) { c.Identity = token(t, words[node]) })
		p.meet(peer.Addresses([]string{peertest.Host(1) + ":700", peertest.Host(2) + ":700"})...)
		for node := range p.meshes {
			if err := p.meshes[node].Await(time.Second); fault.KindOf(err) != fault.Peer || !strings.Contains(err.Error(), "certificate") {
				t.Errorf("node %d after a second: %v", node, err)
			}
		}
		p.meshes[1].Close()
		if err := p.meshes[0].Await(20 * time.Second); fault.KindOf(err) != fault.Peer || !strings.Contains(err.Error(), "certificate") {
			t.Error(err)
		}
		p.close()
	})
}

func TestShortTokenIsRefused(t *testing.T) {
	if _, err := peer.Token([]byte("123456789012345")); fault.KindOf(err) != fault.Invalid {
		t.Error(err)
	}
}

func TestTokenWithoutCards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, func(_ int, c *peer.Config) { c.Identity = token(t, "0123456789abcdef") })
		p.meet(peer.Addresses([]string{peertest.Host(1) + ":700", peertest.Host(2) + ":700"})...)
		if errs, _ := p.await(5 * time.Second); errs[0] != nil || errs[1] != nil {
			t.Error(errs)
		}
		p.close()
	})
}

// Cards that went through a store that others can write are authenticated by the token.
func TestForgedCards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, func(_ int, c *peer.Config) { c.Identity = token(t, "0123456789abcdef") })
		card := p.meshes[1].Card()
		if err := p.meshes[0].Meet([]peer.Card{card}); err != nil {
			t.Fatal(err)
		}
		for name, forge := range map[string]func(*peer.Card){
			"address":     func(c *peer.Card) { c.Address = "10.9.9.9:1" },
			"key":         func(c *peer.Card) { c.Fingerprint[0]++ },
			"incarnation": func(c *peer.Card) { c.Incarnation++ },
			"node":        func(c *peer.Card) { c.Node = 0 },
			"no seal":     func(c *peer.Card) { c.Seal = nil },
		} {
			c := card
			forge(&c)
			if err := p.meshes[0].Meet([]peer.Card{c}); fault.KindOf(err) != fault.Peer {
				t.Errorf("%s: %v", name, err)
			}
		}
		p.close()
	})
}

// A card is told through a store as JSON.
func TestCardsAreJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, nil)
		text, err := json.Marshal(p.meshes[0].Card())
		if err != nil {
			t.Fatal(err)
		}
		var back peer.Card
		if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, p.meshes[0].Card()) {
			t.Errorf("%s: %v, %v", text, back, err)
		}
		for _, bad := range []string{`{"fingerprint":"00"}`, `{"fingerprint":"zz"}`, `{"fingerprint":7}`} {
			if err := json.Unmarshal([]byte(bad), &back); err == nil {
				t.Errorf("%s was read", bad)
			}
		}
		p.close()
	})
}

// Cards arrive at different times: who is dialed before it knows the dialer's says so, and that is no refusal.
func TestCardsMayComeLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, nil)
		if err := p.meshes[0].Meet([]peer.Card{p.meshes[1].Card()}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if err := p.meshes[1].Meet([]peer.Card{p.meshes[0].Card()}); err != nil {
			t.Fatal(err)
		}
		if errs, _ := p.await(5 * time.Second); errs[0] != nil || errs[1] != nil {
			t.Error(errs)
		}
		if n := p.meshes[0].Refused() + p.meshes[1].Refused(); n != 0 {
			t.Errorf("%d refusals", n)
		}
		p.close()
	})
}

// A peer that restarts dials with its new key before its new card is here: it waits for that.
func TestNewKeyBeforeItsCard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, nil)
		old := p.meshes[0].Card()
		p.meshes[0].Close()
		m, err := peer.Listen(peer.Config{Node: 0, Nodes: 2, Ranks: []int{1, 1}, Listen: old.Address, Socket: p.network.Listen,
			Incarnation: old.Incarnation + 1})
		if err != nil {
			t.Fatal(err)
		}
		p.meshes[0] = m
		p.meet(old, p.meshes[1].Card())
		time.AfterFunc(2*time.Second, func() { p.meet(m.Card()) })
		if errs, _ := p.await(10 * time.Second); errs[0] != nil || errs[1] != nil {
			t.Error(errs)
		}
		// The old card does not come into force again.
		p.meet(old)
		time.Sleep(5 * time.Second)
		if s := p.meshes[1].Stats()[0]; !s.Connected || s.Connects != 1 {
			t.Errorf("%+v", s)
		}
		p.close()
	})
}

// The one who dials fails after a while, whoever has the wrong key. The one who was dialed goes on waiting for the right
// one: who has come may be anybody.
func TestForeignKeyIsRefused(t *testing.T) {
	for odd := range 2 {
		synctest.Test(t, func(t *testing.T) {
			p := newPair(t, nil)
			cards := []peer.Card{p.meshes[0].Card(), p.meshes[1].Card()}
			cards[odd].Fingerprint[0]++
			p.meet(cards...)
			errs, after := p.await(time.Minute)
			if fault.KindOf(errs[0]) != fault.Peer || !strings.Contains(errs[0].Error(), "cards of another run") || after[0] > 5*time.Second {
				t.Errorf("after %v: %v", after[0], errs[0])
			}
			if fault.KindOf(errs[1]) != fault.Peer || odd == 0 && !strings.HasSuffix(errs[1].Error(), "it is not the key on the card of node 0") {
				t.Errorf("after %v: %v", after[1], errs[1])
			}
			p.close()
		})
	}
}

func TestUnreachableNodeIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, nil)
		p.network.Cut(peertest.Host(2), true)
		p.meet(p.meshes[0].Card(), p.meshes[1].Card())
		errs, after := p.await(7 * time.Second)
		for node, word := range []string{"node 1 at 10.1.0.2:700: nobody answers", "node 0 at 10.1.0.1:700, which has not called"} {
			var e *fault.Error
			if !errors.As(errs[node], &e) || e.Kind != fault.Peer || !strings.Contains(e.Message, word) ||
				after[node] != 7*time.Second || e.Peer == "" {
				t.Errorf("%v, %v", errs[node], after[node])
			}
		}
		p.close()
	})
}

func TestBadConfigurations(t *testing.T) {
	good := peer.Config{Node: 0, Nodes: 2, Ranks: []int{1, 1}, Listen: "127.0.0.1:0"}
	for name, change := range map[string]func(*peer.Config){
		"node":    func(c *peer.Config) { c.Node = 2 },
		"ranks":   func(c *peer.Config) { c.Ranks = []int{1} },
		"no rank": func(c *peer.Config) { c.Ranks = []int{1, 0} },
		"host":    func(c *peer.Config) { c.Listen = ":0" },
		"all":     func(c *peer.Config) { c.Listen = "0.0.0.0:0" },
		"port":    func(c *peer.Config) { c.Listen = "127.0.0.1" },
	} {
		c := good
		change(&c)
		if _, err := peer.Listen(c); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	good.Memory = 1000
	_, err := peer.Listen(good)
	var e *fault.Error
	if !errors.As(err, &e) || e.Kind != fault.Memory || e.Given != 1000 || e.Needed <= 1000 {
		t.Error(err)
	}
}
