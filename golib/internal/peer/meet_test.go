package peer_test

import (
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redox-loader/redox/golib/internal/peer"
	"github.com/redox-loader/redox/golib/internal/peer/peertest"
)

// Cards may come one after the other: nodes dial when they have all of them.
func TestCardsThatComeInPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := peertest.NewNetwork(1, peertest.Link{Delay: time.Millisecond})
		var meshes [3]*peer.Mesh
		for node := range meshes {
			m, err := peer.Listen(peer.Config{Node: node, Nodes: 3, Ranks: []int{1, 1, 1},
				Listen: net.JoinHostPort(peertest.Host(node+1), "0"), Socket: network.Listen})
			if err != nil {
				t.Fatal(err)
			}
			meshes[node] = m
		}
		var cards []peer.Card
		for _, of := range meshes {
			cards = append(cards, of.Card())
			for _, m := range meshes {
				if err := m.Meet(cards); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
		}
		for node, m := range meshes {
			if err := m.Await(10 * time.Second); err != nil {
				t.Errorf("node %d: %v", node, err)
			}
		}
		for _, m := range meshes {
			go m.Close()
		}
		time.Sleep(time.Minute)
	})
}

// A node that has left again was there: who waits for others goes on waiting for those alone.
func TestSomebodyLeavesBeforeAllHaveMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := peertest.NewNetwork(1, peertest.Link{Delay: time.Millisecond})
		var meshes [3]*peer.Mesh
		var cards []peer.Card
		for node := range meshes {
			m, err := peer.Listen(peer.Config{Node: node, Nodes: 3, Ranks: []int{1, 1, 1},
				Listen: net.JoinHostPort(peertest.Host(node+1), "0"), Socket: network.Listen})
			if err != nil {
				t.Fatal(err)
			}
			meshes[node], cards = m, append(cards, m.Card())
		}
		for _, m := range meshes[1:] {
			if err := m.Meet(cards); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		meshes[2].Close()
		if err := meshes[0].Meet(cards); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := meshes[1].Await(time.Minute); err != nil || time.Since(began) > 5*time.Second {
			t.Errorf("node 1 has met both: %v after %v", err, time.Since(began))
		}
		err := meshes[0].Await(time.Minute)
		if err == nil || !strings.Contains(err.Error(), "node 2") || strings.Contains(err.Error(), "node 1") {
			t.Errorf("node 0 has met node 1 alone: %v", err)
		}
		for _, m := range meshes[:2] {
			go m.Close()
		}
		time.Sleep(time.Minute)
	})
}
