package peer_test

import (
	"bytes"
	"log"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redox-loader/redox/golib/internal/exchange"
	"github.com/redox-loader/redox/golib/internal/peer"
)

// onLoopback connects nodes by real sockets.
func onLoopback(t testing.TB, j *job) *cluster {
	t.Helper()
	c := &cluster{t: t, job: j}
	for node := range j.ranks {
		l := &logbook{}
		c.logs = append(c.logs, l)
		m, err := peer.Listen(peer.Config{Node: node, Nodes: len(j.ranks), Ranks: j.ranks, Listen: "127.0.0.1:0", Log: l.add})
		if err != nil {
			t.Fatal(err)
		}
		c.meshes = append(c.meshes, m)
	}
	c.meet()
	for _, m := range c.meshes {
		if err := m.Await(30 * time.Second); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// A library has no business on the standard error of the program that uses it.
func TestListenIsSilent(t *testing.T) {
	var text bytes.Buffer
	log.SetOutput(&text)
	defer log.SetOutput(os.Stderr)
	onLoopback(t, newJob(1, []int{1, 1}, 0, 0)).close()
	if text.Len() > 0 {
		t.Errorf("this was written: %s", text.String())
	}
}

// Real packets are joined by the kernel and taken apart again; the samples must be the same.
func TestRealSockets(t *testing.T) {
	j := newJob(1, []int{1, 1, 1}, 900, 100_000)
	c := onLoopback(t, j)
	var wg sync.WaitGroup
	var all []*runner
	for rank := range 3 {
		r := newRunner(t, c.meshes[rank], j, exchange.ID{}, rank, 16)
		r.hedge = time.Minute
		all = append(all, r)
		wg.Go(r.push)
		wg.Go(func() { r.pull(16) })
	}
	wg.Wait()
	for _, r := range all {
		if len(j.incoming(r.rank)) != r.here+r.lost { // a connection may be lost on a machine that is busy enough
			t.Error(r)
		}
		r.lane.Close()
	}
	c.close()
}

// What cannot be opened is said.
func TestSocketErrors(t *testing.T) {
	a, err := peer.OpenSocket("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if _, err := peer.OpenSocket(a.LocalAddr().String()); err == nil {
		t.Error("the address was given twice")
	}
	if _, err := peer.OpenSocket("127.0.0.1:port"); err == nil {
		t.Error("a port that is none")
	}
}
