package wire_test

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/wire"
)

// coding is one kind of message: how an example is written, and how bytes are parsed and written again.
type coding struct {
	name    string
	bytes   []byte                         // an example
	golden  string                         // the same, in hexadecimal
	reparse func(b []byte) ([]byte, error) // parses and appends again
}

// control makes a coding of a control message from its parser, which gets the body.
func control[M interface{ Append([]byte) []byte }](name string, m M, kind wire.Kind, parse func([]byte) (M, error), golden string) coding {
	return coding{name, m.Append(nil), golden, func(b []byte) ([]byte, error) {
		got, size, err := wire.ParseHead(b[:min(wire.HeadSize, len(b))])
		if err != nil {
			return nil, err
		}
		if got != kind {
			return nil, fault.New(fault.Peer, "another kind")
		}
		if len(b) != wire.HeadSize+size {
			return nil, fault.New(fault.Peer, "size")
		}
		m, err := parse(b[wire.HeadSize:])
		if err != nil {
			return nil, err
		}
		return m.Append(nil), nil
	}}
}

func head[M interface{ Append([]byte) []byte }](name string, m M, parse func([]byte) (M, error), golden string) coding {
	return coding{name, m.Append(nil), golden, func(b []byte) ([]byte, error) {
		m, err := parse(b)
		if err != nil {
			return nil, err
		}
		return m.Append(nil), nil
	}}
}

var (
	lane   = wire.Lane{Epoch: 1, Nth: 2, From: 3}
	laneIn = "0100000000000000" + "0200000000000000" + "0300000000000000"
	hello  = wire.Hello{Version: 1, Node: 2, Nodes: 3, Incarnation: 4, World: [32]byte{5}, Plan: [32]byte{6}}
)

var codings = []coding{
	control("HELLO", hello, wire.KindHello, wire.ParseHello, "01005200"+"0100"+"02000000"+"03000000"+"0400000000000000"+
		"05"+strings.Repeat("00", 31)+"06"+strings.Repeat("00", 31)),
	control("CREDIT", wire.Credit{Lane: lane, Rank: 4, From: 5, Upto: 6}, wire.KindCredit, wire.ParseCredit,
		"02002c00"+laneIn+"04000000"+"0500000000000000"+"0600000000000000"),
	control("DROPPED", wire.Dropped{Lane: lane, Rank: 4, From: 5, To: 6}, wire.KindDropped, wire.ParseDropped,
		"03002c00"+laneIn+"04000000"+"0500000000000000"+"0600000000000000"),
	control("ABANDON", wire.Abandon{Lane: lane, Rank: 4, To: 5, Next: 6}, wire.KindAbandon, wire.ParseAbandon,
		"04002800"+laneIn+"04000000"+"05000000"+"0600000000000000"),
	control("BYE", wire.Bye{Streams: 7}, wire.KindBye, wire.ParseBye, "05000800"+"0700000000000000"),
	head("stream", wire.Stream{Lane: lane, To: 4, By: 5}, wire.ParseStream, laneIn+"04000000"+"05000000"),
	head("frame", wire.Frame{Ordinal: 1, Position: 2, Length: 4, Prefix: 3, Raw: 5, CRC: 6}, wire.ParseFrame,
		"0100000000000000"+"0200000000000000"+"04000000"+"03000000"+"0500000000000000"+"06000000"),
}

// The bytes are those of docs/protocol.md: another implementation relies on them.
func TestGolden(t *testing.T) {
	for _, c := range codings {
		if got := hex.EncodeToString(c.bytes); got != c.golden {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.golden)
		}
		back, err := c.reparse(c.bytes)
		if err != nil || !bytes.Equal(back, c.bytes) {
			t.Errorf("%s parsed and written again: %x, %v", c.name, back, err)
		}
	}
}

func TestEveryTruncationFails(t *testing.T) {
	for _, c := range codings {
		for i := range c.bytes {
			if _, err := c.reparse(c.bytes[:i]); fault.KindOf(err) != fault.Peer {
				t.Errorf("%s cut to %d bytes: %v", c.name, i, err)
			}
		}
		if _, err := c.reparse(append(bytes.Clone(c.bytes), 0)); err == nil {
			t.Errorf("%s with a byte too many was parsed", c.name)
		}
	}
}

func TestNonsenseIsRefused(t *testing.T) {
	bad := map[string]func() ([]byte, error){
		"node beyond the nodes": func() ([]byte, error) {
			return codings[0].reparse(wire.Hello{Version: 1, Node: 3, Nodes: 3}.Append(nil))
		},
		"too many nodes": func() ([]byte, error) {
			return codings[0].reparse(wire.Hello{Version: 1, Nodes: wire.MaxNodes + 1}.Append(nil))
		},
		"credit that falls":    func() ([]byte, error) { return codings[1].reparse(wire.Credit{From: 2, Upto: 1}.Append(nil)) },
		"empty range":          func() ([]byte, error) { return codings[2].reparse(wire.Dropped{From: 2, To: 2}.Append(nil)) },
		"prefix beyond length": func() ([]byte, error) { return codings[6].reparse(wire.Frame{Length: 1, Prefix: 2}.Append(nil)) },
		"negative position":    func() ([]byte, error) { return codings[6].reparse(wire.Frame{Position: -1}.Append(nil)) },
		"huge sample":          func() ([]byte, error) { return codings[6].reparse(wire.Frame{Length: 1 << 31}.Append(nil)) },
		"huge decoded sample":  func() ([]byte, error) { return codings[6].reparse(wire.Frame{Raw: 1 << 63}.Append(nil)) },
		"unknown kind":         func() ([]byte, error) { return codings[1].reparse([]byte{9, 0, 44, 0}) },
		"reserved byte":        func() ([]byte, error) { return codings[1].reparse([]byte{2, 1, 44, 0}) },
		"wrong size":           func() ([]byte, error) { return codings[1].reparse([]byte{2, 0, 45, 0}) },
	}
	for name, parse := range bad {
		if _, err := parse(); fault.KindOf(err) != fault.Peer {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := codings[0].reparse(wire.Hello{Version: 2, Node: 9, Nodes: 1}.Append(nil)); err != nil {
		t.Errorf("a HELLO of another version must be told by its version, not by what it says: %v", err)
	}
}

func TestWorldHashTellsWorldsApart(t *testing.T) {
	worlds := [][]int{{1}, {1, 1}, {2, 1}, {1, 2}, {3}, {1, 1, 1}, {}}
	seen := map[[32]byte]int{}
	for i, w := range worlds {
		h := wire.WorldHash(w)
		if j, is := seen[h]; is {
			t.Errorf("worlds %v and %v have the same hash", w, worlds[j])
		}
		seen[h] = i
	}
}

// What is parsed is written again as the same bytes: no two byte strings mean the same, and nothing panics.
func FuzzParse(f *testing.F) {
	for _, c := range codings {
		f.Add(c.bytes)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, c := range codings {
			back, err := c.reparse(b)
			if err == nil && !bytes.Equal(back, b) {
				t.Errorf("%s: %x was parsed and written again as %x", c.name, b, back)
			}
			if err != nil && fault.KindOf(err) != fault.Peer {
				t.Errorf("%s: %x: %v", c.name, b, err)
			}
		}
	})
}
