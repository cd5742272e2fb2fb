package peer

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// Meet tells of the other nodes: their cards, or where there is an identity that needs none, only their addresses. It may
// be called again, with any cards: of each node the one with the highest incarnation counts. A card that was not made by
// one of us, where that can be told, is refused, and nothing of the call is taken.
func (m *Mesh) Meet(cards []Card) error {
	for _, c := range cards {
		if c.Node < 0 || c.Node >= m.config.Nodes {
			return fault.New(fault.Invalid, "a card of node %d of %d", c.Node, m.config.Nodes)
		}
		if err := checkSeal(m.identity, c); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range cards {
		p := m.peers[c.Node]
		if c.Node == m.config.Node || p.card.Address != "" && c.Incarnation <= p.card.Incarnation {
			continue
		}
		p.card = c
		p.refusal, p.trouble, p.strange = nil, nil, time.Time{}
		clear(p.told)
		signal(p.meet)
		if s := p.session; s != nil && p.newest < c.Incarnation {
			m.work.Go(func() { s.close(codeStale, "") }) // its process has ended, or will
		}
	}
	before := m.met
	m.met = !m.identity.needsCards() || !slices.ContainsFunc(m.peers, func(p *peer) bool {
		return p.node != m.config.Node && p.card.Fingerprint == Fingerprint{}
	})
	if m.met && !before {
		for _, p := range m.peers {
			signal(p.meet) // who dials has waited for the others' cards, too
		}
	}
	m.change()
	return nil
}

// Addresses makes cards of a list of addresses in the order of the nodes, for identities that need no more.
func Addresses(list []string) []Card {
	cards := make([]Card, len(list))
	for node, address := range list {
		cards[node] = Card{Node: node, Address: address}
	}
	return cards
}

// Await waits until all peers are connected, or have been: one that got all it wanted may have left before the others
// have found each other. It returns early when one of them refuses this node, or this node one of
// them, for a reason that will not pass.
func (m *Mesh) Await(timeout time.Duration) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		m.mu.Lock()
		missing, err, changed := m.missing(), m.refusal(), m.changed
		closing := m.closing
		m.mu.Unlock()
		if err != nil || len(missing) == 0 {
			return err
		}
		if closing {
			return fault.New(fault.Canceled, "the exchange was closed while it waited for node %d", missing[0].node)
		}
		select {
		case <-changed:
		case <-timer.C:
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.unreachable(timeout)
		}
	}
}

// missing are the peers that never came, those of which there is a newer card included.
func (m *Mesh) missing() (all []*peer) {
	for _, p := range m.peers {
		came := p.session != nil || p.newest > 0 && p.newest >= p.card.Incarnation
		if p.node != m.config.Node && !came {
			all = append(all, p)
		}
	}
	return all
}

func (m *Mesh) refusal() error {
	for _, p := range m.peers {
		if p.refusal != nil {
			return p.refusal
		}
	}
	return nil
}

// unreachable is the error of a wait that was too long.
func (m *Mesh) unreachable(timeout time.Duration) error {
	missing := m.missing()
	if len(missing) == 0 {
		return nil // it came with the timer
	}
	var names []string
	for _, p := range missing {
		if !p.strange.IsZero() && p.trouble != nil { // this is why, though it may have fallen silent since
			return m.unlike(p)
		}
		name := fmt.Sprintf("node %d", p.node)
		if p.card.Address != "" {
			name += " at " + p.card.Address
		}
		switch {
		case p.trouble != nil:
			name += ": " + p.trouble.Error()
		case p.card.Address == "":
			name += ", of which nobody has told"
		case p.node < m.config.Node:
			name += ", which has not called"
		}
		names = append(names, name)
	}
	e := fault.New(fault.Peer, "not connected after %v with %s", timeout, strings.Join(names, "; "))
	e.Peer = fmt.Sprintf("node %d", missing[0].node)
	return e
}

// unlike is the error of a peer whose certificate does not fit, or who says so of ours.
func (m *Mesh) unlike(p *peer) error {
	if fault.KindOf(p.trouble) == fault.Peer {
		return p.trouble
	}
	e := fault.Wrap(fault.Peer, p.trouble, "node %d", p.node)
	e.Peer = fmt.Sprintf("node %d", p.node)
	return e
}

// signal wakes the one who listens to a channel of capacity 1.
func signal(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
