package redox

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func TestStaticPeersNeverShareAPort(t *testing.T) {
	for _, peers := range []string{
		"127.0.0.1:5000,127.0.0.1:5001",
		"127.0.0.1:5000,127.0.0.1:5001,127.0.0.1:5002",
		"127.0.0.1:5000,127.0.0.1:5010,127.0.0.1:5004,127.0.0.1:5002",
		"127.0.0.1:5003,localhost:5001",
		"127.0.0.1:40000,127.0.0.1:50000",
	} {
		t.Setenv("REDOX_PEERS", peers)
		seen := map[string]string{}
		for ordinal := range portsApart {
			cards, err := staticPeers(strings.Count(peers, ",")+1, ordinal)
			if err != nil {
				t.Fatal(err)
			}
			for node, card := range cards {
				port := card.Address[strings.LastIndex(card.Address, ":"):]
				who := fmt.Sprintf("node %d's mesh %d", node, ordinal)
				if seen[port] != "" {
					t.Errorf("%s: %s and %s have port %s", peers, seen[port], who, port)
				}
				seen[port] = who
			}
		}
	}
}

func TestStaticPeersOnMachinesOfTheirOwnHaveNeighbouringPorts(t *testing.T) {
	t.Setenv("REDOX_PEERS", "a:5000, b:5000,[::1]:5000")
	cards, err := staticPeers(3, 2)
	if err != nil {
		t.Fatal(err)
	}
	if got := [3]string{cards[0].Address, cards[1].Address, cards[2].Address}; got != [3]string{"a:5002", "b:5002", "[::1]:5002"} {
		t.Errorf("got %v", got)
	}
}

func TestStaticPeersThatAreNone(t *testing.T) {
	for peers, want := range map[string]string{
		"a:1":             "expected 2 addresses",
		"a:1,b:2,":        "expected 2 addresses",
		"a:1,b":           `"b" is no address`,
		"a:1,:2":          `":2" is no address`,
		"a:1,b:0":         `"b:0" is no address`,
		"a:1,b:65536":     `"b:65536" is no address`,
		"a:65535,b:65535": "node 0's would be 65536",
	} {
		t.Setenv("REDOX_PEERS", peers)
		if _, err := staticPeers(2, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", peers, err, want)
		}
	}
}

// TestOwnNameOnDebian: there the own name means 127.0.1.1, where no other machine would find this one.
func TestOwnNameOnDebian(t *testing.T) {
	own := netip.MustParseAddr("127.0.1.1")
	for _, host := range []string{"127.0.1.1", "localhost"} {
		if got := outward(host, own); got != own {
			t.Errorf("%s became %v", host, got)
		}
	}
	route, err := source(netip.MustParseAddr("192.0.2.1"))
	if err != nil {
		t.Skip("there is no route to other machines")
	}
	if got := outward("node7", own); got != route {
		t.Errorf("node7 is %v, others reach it at %v", got, route)
	}
}
