package peer_test

import (
	"net"
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
