package peer_test

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/redox-loader/redox/golib/internal/exchange"
	"github.com/redox-loader/redox/golib/internal/peer"
	"github.com/redox-loader/redox/golib/internal/peer/peertest"
	"github.com/redox-loader/redox/golib/internal/wire"
)

// stranger dials a node by hand, with any TLS configuration, and returns what became of it.
func stranger(t *testing.T, network *peertest.Network, address string, config *tls.Config) error {
	t.Helper()
	conn, err := network.Listen(peertest.Host(99) + ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	transport := &quic.Transport{Conn: conn}
	defer transport.Close()
	target, _ := net.ResolveUDPAddr("udp", address)
	config.NextProtos, config.InsecureSkipVerify = []string{wire.Protocol}, true
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := transport.Dial(ctx, target, config, &quic.Config{})
	if err != nil {
		return err
	}
	defer c.CloseWithError(0, "")
	control, err := c.OpenStreamSync(ctx)
	if err != nil {
		return err
	}
	control.SetDeadline(time.Now().Add(5 * time.Second))
	control.Write(wire.Hello{Version: wire.Version, Node: 0, Nodes: 2, World: wire.WorldHash([]int{1, 1}),
		Incarnation: 1 << 62}.Append(nil))
	_, err = control.Read(make([]byte, 1))
	return err
}

// Strangers never get as far as a HELLO, whatever the node's identity is, and cost those who are connected nothing.
func TestStrangersAreRefused(t *testing.T) {
	ours := newAuthority(t)
	never := time.Unix(1<<33, 0)
	identities := map[string]func(node int) peer.Identity{
		"pinned": func(int) peer.Identity { return peer.Pinned() },
		"token":  func(int) peer.Identity { return token(t, "0123456789abcdef") },
		"files": func(node int) peer.Identity {
			return ours.identity([]string{"node-0.redox", "node-1.redox"}[node], never)
		},
	}
	for name, identity := range identities {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t, func(node int, c *peer.Config) { c.Identity = identity(node) })
				p.meet(p.meshes[0].Card(), p.meshes[1].Card())
				if errs, _ := p.await(5 * time.Second); errs[0] != nil || errs[1] != nil {
					t.Fatal(errs)
				}
				address := p.meshes[1].Card().Address
				for what, config := range map[string]*tls.Config{
					"no certificate":      {},
					"rogue certificate":   {Certificates: []tls.Certificate{selfSigned(t, "node-0.redox")}},
					"foreign name":        {Certificates: []tls.Certificate{selfSigned(t, "node-7.redox")}},
					"TLS 1.2 at the most": {MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{selfSigned(t, "node-0.redox")}},
				} {
					before := p.meshes[1].Refused()
					if err := stranger(t, p.network, address, config); err == nil {
						t.Errorf("%s: no error", what)
					}
					synctest.Wait()
					if what != "TLS 1.2 at the most" && p.meshes[1].Refused() != before+1 {
						t.Errorf("%s: refused %d times", what, p.meshes[1].Refused()-before)
					}
				}
				if s := p.meshes[1].Stats()[0]; !s.Connected || s.Connects != 1 {
					t.Errorf("%+v", s)
				}
				p.close()
			})
		})
	}
}

// A recorder repeats every packet that was sent to a node.
func TestReplayedPacketsDoNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(5, []int{1, 1}, 300, 2000)
		network := peertest.NewNetwork(1, peertest.Link{Delay: time.Millisecond})
		record := network.Record(peertest.Host(2))
		c := newCluster(t, j, network)
		c.run(exchange.ID{}, 16, nil)
		before := c.meshes[1].Stats()[0]
		packets := record()
		for range 3 {
			for _, p := range packets {
				network.Replay(p)
			}
			time.Sleep(time.Second)
		}
		if after := c.meshes[1].Stats()[0]; after != before || len(packets) < 100 {
			t.Errorf("%d packets replayed: %+v, before %+v", len(packets), after, before)
		}
		c.run(exchange.ID{Epoch: 1}, 16, nil)
		c.close()
		time.Sleep(time.Minute)
	})
}

// A thousand handshakes a second from strangers do not stop those who are connected.
func TestFloodOfHandshakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(5, []int{1, 1}, 1500, 2000)
		network := peertest.NewNetwork(1, peertest.Link{Delay: time.Millisecond})
		c := newCluster(t, j, network)
		stop := make(chan struct{})
		flood := make(chan struct{})
		go func() {
			defer close(flood)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				conn, _ := network.Listen(peertest.Host(100+i%50) + ":0")
				transport := &quic.Transport{Conn: conn}
				ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
				target, _ := net.ResolveUDPAddr("udp", c.meshes[1].Card().Address)
				transport.Dial(ctx, target, &tls.Config{NextProtos: []string{wire.Protocol}, InsecureSkipVerify: true}, nil)
				cancel()
				transport.Close()
				conn.Close()
			}
		}()
		for _, r := range c.run(exchange.ID{}, 32, func(r *runner) { r.step = time.Millisecond }) {
			if r.lost+r.late != 0 {
				t.Error(r)
			}
		}
		close(stop)
		<-flood
		c.close()
		time.Sleep(time.Minute)
	})
}
