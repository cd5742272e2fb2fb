package redox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redox-loader/redox/golib/internal/exchange"
	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/peer"
	"github.com/redox-loader/redox/golib/internal/plan"
)

// Mesh is this node's end of the connections between the nodes that share the epochs of one plan. It exists before the
// loaders that use it, because the nodes have to learn each other's addresses and keys first: every node makes one,
// hands out its card, and is given the cards of all (Meet). Safe for concurrent use.
type Mesh struct {
	*peer.Mesh
	terms   terms
	static  []peer.Card // of all nodes where the environment names them, else nil
	timeout time.Duration
	bytes   int64 // of connections
	met     atomic.Bool
	began   atomic.Pointer[time.Time] // when Meet began to wait for connections

	mu     sync.Mutex
	passes map[passKey]uint64 // that began
	refs   int
	gone   func() // after the last Close, or nil
}

// meshOptions are those of redox_mesh_new: a loader's, so that plan and ranks are known, and where to listen.
type meshOptions struct {
	loaderOptions
	Listen    string `json:"listen"`    // host:port
	Interface string `json:"interface"` // name or address
	Reach     string `json:"reach"`     // a host that the other nodes reach this one from alike: where they meet
	Ordinal   int    `json:"ordinal"`   // of the program's meshes: each has other ports than those in REDOX_PEERS
}

// exchanges says whether nodes send each other samples. In stored order each reads what its ranks need.
func exchanges(p *plan.Plan, cut plan.World) bool {
	return len(cut.Nodes) > 1 && p.Shuffled() && cut.Exchange.Mode != plan.Off
}

// NewMesh makes the connections' end of this node and listens.
func (d *Dataset) NewMesh(optionsJSON []byte, resolve Resolver) (*Mesh, error) {
	var o meshOptions
	if err := decode(optionsJSON, &o); err != nil {
		return nil, err
	}
	if err := o.handles(resolve); err != nil {
		return nil, err
	}
	p, err := d.newPlan(&o.planOptions, resolve)
	if err != nil {
		return nil, err
	}
	return d.newMesh(&o, p)
}

func (d *Dataset) newMesh(o *meshOptions, p *plan.Plan) (*Mesh, error) {
	cut, w, err := o.planWorld()
	if err != nil {
		return nil, err
	}
	if !exchanges(p, cut) {
		return nil, fault.New(fault.Invalid, "nodes=%d, exchange=%v, shuffle=%v: there is nothing to exchange", w.nodes, o.Exchange, p.Shuffled())
	}
	if o.Ordinal < 0 || o.Ordinal > maxOrdinal {
		return nil, fault.New(fault.Invalid, "ordinal=%d: expected 0 to %d", o.Ordinal, maxOrdinal)
	}
	m := &Mesh{terms: d.terms(o, p, cut), passes: map[passKey]uint64{}, refs: 1}
	if m.timeout, err = o.timeout(); err != nil {
		return nil, err
	}
	limit, err := o.memoryLimit()
	if err != nil {
		return nil, err
	}
	m.bytes = meshMemory(w.nodes, limit)
	cfg := peer.Config{
		Node: w.node(), Nodes: w.nodes, Ranks: w.ranks, Hash: m.terms.hash(), Memory: m.bytes, Log: log.line,
	}
	if m.static, err = staticPeers(w.nodes, o.Ordinal); err != nil {
		return nil, err
	}
	if cfg.Identity, err = identity(m.static != nil); err != nil {
		return nil, err
	}
	if cfg.Listen, err = o.listen(m.static, w.node()); err != nil {
		return nil, err
	}
	if m.Mesh, err = peer.Listen(cfg); err != nil {
		return nil, err
	}
	return m, nil
}

// meshMemory is what the connections take of memory_limit (0: auto), for what is under way from each peer.
func meshMemory(nodes int, limit int64) int64 {
	peers, each := int64(nodes-1), int64(mostWindow)
	if limit > 0 {
		each = min(each, max(leastWindow, limit/16/peers))
	}
	return peers * each
}

// limitFor is the smallest memory_limit that leaves so much beside the connections, which take more of a larger one.
func limitFor(nodes int, rest int64) int64 {
	limit := rest
	for limit-meshMemory(nodes, limit) < rest {
		limit = rest + meshMemory(nodes, limit)
	}
	return limit
}

// Bytes of one connection: enough for some Gbit/s between machines of one place; and the least that is worth it.
const (
	mostWindow  = 2 << 20
	leastWindow = 64 << 10
)

// memory is what the mesh takes of a loader's memory_limit.
func (m *Mesh) memory() int64 {
	if m == nil {
		return 0
	}
	return m.bytes
}

// card is what a node tells the others: how to reach it, and its terms, so that a difference can be named.
type card struct {
	peer.Card
	// Terms may be missing where they are those of the node that the card is brought to: there are thousands of nodes, and
	// messages to an engine are bounded. HELLO compares them anyway.
	Terms *terms `json:"terms,omitempty"`
}

// CardJSON is what the other nodes must be given. Where the environment names all nodes it says so, and no card needs
// to go anywhere.
func (m *Mesh) CardJSON() ([]byte, error) {
	return encode(struct {
		card
		Static   bool `json:"static"`
		Met      bool `json:"met"`      // before
		Complete bool `json:"complete"` // all are connected
	}{card{m.Card(), &m.terms}, m.static != nil, m.met.Load(), m.Complete()})
}

// Meet gives the mesh the cards of all nodes (a JSON array), or none where the environment names them. With a timeout
// it waits until all are connected; negative: the option's.
func (m *Mesh) Meet(cardsJSON []byte, timeout time.Duration) error {
	cards := m.static
	if len(bytes.TrimSpace(cardsJSON)) > 0 {
		var err error
		if cards, err = m.read(cardsJSON); err != nil {
			return err
		}
	}
	if cards == nil {
		return fault.New(fault.Invalid, "cards: expected those of all nodes")
	}
	if err := m.Mesh.Meet(cards); err != nil {
		return err
	}
	if timeout < 0 {
		timeout = m.timeout
	}
	if timeout > 0 {
		if err := m.await(timeout); err != nil {
			return err
		}
	}
	m.met.Store(true)
	return nil
}

// await waits until all are connected. Who waits in slices is told how long it was in all.
func (m *Mesh) await(timeout time.Duration) error {
	began := m.began.Load()
	if began == nil {
		now := time.Now()
		began = &now
		m.began.Store(began)
	}
	err := m.Await(timeout)
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != fault.Peer {
		m.began.Store(nil)
		return err
	}
	what, who, late := strings.Cut(f.Message, " with ")
	if !late || !strings.HasPrefix(what, "not connected after") {
		return err
	}
	f.Kind, f.Message = fault.TimedOut, fmt.Sprintf("not connected after %.1f s with %s", time.Since(*began).Seconds(), who)
	return f
}

// read parses the cards and compares the terms.
func (m *Mesh) read(cardsJSON []byte) ([]peer.Card, error) {
	var all []card
	if err := json.Unmarshal(cardsJSON, &all); err != nil {
		return nil, fault.New(fault.Invalid, "cards: %v", err)
	}
	cards := make([]peer.Card, len(all))
	for i := range all {
		cards[i] = all[i].Card
		if all[i].Terms == nil {
			continue
		}
		if what := m.terms.differ(all[i].Terms); what != "" {
			return nil, fault.New(fault.Invalid, "%s on node %d: all ranks of all nodes must use the same data set, options and "+
				"release", what, cards[i].Node)
		}
	}
	return cards, nil
}

// Complete says whether all other nodes are connected just now.
func (m *Mesh) Complete() bool {
	for node, s := range m.Stats() {
		if node != m.Node() && !s.Connected {
			return false
		}
	}
	return true
}

// passKey is what the passes that Open numbers have in common.
type passKey struct {
	rank  int
	epoch uint64
	from  int64
}

// Open begins a lane. Passes are numbered here and not by their loaders, of which a rank may have several: the ranks' nth
// passes over an epoch belong together, whichever loaders make them.
func (m *Mesh) Open(cfg exchange.Config) (exchange.Lane, error) {
	key := passKey{cfg.Rank, cfg.ID.Epoch, cfg.ID.From}
	m.mu.Lock()
	cfg.ID.Nth = m.passes[key]
	m.passes[key]++
	m.mu.Unlock()
	return m.Mesh.Open(cfg)
}

func (m *Mesh) retain() *Mesh {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refs++
	return m
}

// Close ends the connections, after the last loader that uses them. A nil mesh has none.
func (m *Mesh) Close() {
	if m == nil {
		return
	}
	m.mu.Lock()
	m.refs--
	last := m.refs == 0
	m.mu.Unlock()
	if !last {
		return
	}
	m.Mesh.Close()
	if m.gone != nil {
		m.gone()
	}
}

// fits says whether a loader with these terms, of this node, can use the mesh.
func (m *Mesh) fits(t *terms, node int) error {
	if what := t.differ(&m.terms); what != "" {
		return fault.New(fault.Invalid, "mesh: %s there", what)
	}
	if node != m.Node() {
		return fault.New(fault.Invalid, "mesh: it is node %d's, this loader's rank is on node %d", m.Node(), node)
	}
	return nil
}

// mesh returns the connections that a loader uses, with a reference, or nil where it needs none: those of its option, or
// of the loader that it shares an engine with, or its own as the environment has them.
func (d *Dataset) mesh(o *loaderOptions, p *plan.Plan, resolve Resolver) (*Mesh, error) {
	var m *Mesh
	if o.Mesh != nil { // it must be one even where nothing is exchanged
		var err error
		if m, err = referred("mesh", *o.Mesh, "mesh", resolve.Mesh); err != nil {
			return nil, err
		}
	}
	cut, w, err := o.planWorld()
	if err != nil || !exchanges(p, cut) {
		return nil, err
	}
	t := d.terms(&meshOptions{loaderOptions: *o}, p, cut)
	if m == nil {
		return d.ownMesh(o, p, w, t)
	}
	if err := m.fits(&t, w.node()); err != nil {
		return nil, err
	}
	return m.retain(), nil
}

// ownMeshes are those that loaders made from the environment.
var ownMeshes = struct {
	sync.Mutex
	open  map[meshKey]*Mesh
	taken map[[2]int]bool // node and ordinal
}{open: map[meshKey]*Mesh{}, taken: map[[2]int]bool{}}

// meshKey tells the meshes of a process apart; a program may be several nodes, which is good for tests.
type meshKey struct {
	data *Dataset
	hash [32]byte
	node int
}

const maxOrdinal = 1 << 12

// ownMesh makes a mesh as the environment has it, or takes the one that another loader has made, and waits until all
// nodes are connected. Programs make their loaders in the same order on all nodes: the ordinal tells their meshes apart.
func (d *Dataset) ownMesh(o *loaderOptions, p *plan.Plan, w world, t terms) (*Mesh, error) {
	if !namesPeers() {
		return nil, errNoPeers(w.nodes)
	}
	key := meshKey{d, t.hash(), w.node()}
	ownMeshes.Lock()
	m := ownMeshes.open[key]
	if m != nil {
		m.retain()
	} else {
		ordinal := 0
		for ownMeshes.taken[[2]int{key.node, ordinal}] {
			ordinal++
		}
		var err error
		if m, err = d.newMesh(&meshOptions{loaderOptions: *o, Ordinal: ordinal}, p); err != nil {
			ownMeshes.Unlock()
			return nil, err
		}
		ownMeshes.open[key], ownMeshes.taken[[2]int{key.node, ordinal}] = m, true
		m.gone = func() {
			ownMeshes.Lock()
			defer ownMeshes.Unlock()
			if ownMeshes.open[key] == m {
				delete(ownMeshes.open, key)
			}
			delete(ownMeshes.taken, [2]int{key.node, ordinal})
		}
	}
	ownMeshes.Unlock()
	if err := m.Meet(nil, m.timeout); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// peerStats are the counters of the exchange with one other node.
type peerStats struct {
	Node       int   `json:"node"`
	Connected  bool  `json:"connected"`
	BytesIn    int64 `json:"bytes_in"` // of samples, as stored
	BytesOut   int64 `json:"bytes_out"`
	SamplesIn  int64 `json:"samples_in"`
	SamplesOut int64 `json:"samples_out"`
	Useless    int64 `json:"useless"`  // samples that came when nobody needed them any more
	Dropped    int64 `json:"dropped"`  // samples that this node gave up sending
	Refused    int64 `json:"refused"`  // connections
	Connects   int64 `json:"connects"` // connections that were accepted
}

func (m *Mesh) stats() []peerStats {
	out := []peerStats{}
	if m == nil {
		return out
	}
	for node, s := range m.Stats() {
		if node != m.Node() {
			out = append(out, peerStats{
				node, s.Connected, s.BytesIn, s.BytesOut, s.SamplesIn, s.SamplesOut, s.Useless, s.Dropped, s.Refused, s.Connects,
			})
		}
	}
	return out
}
