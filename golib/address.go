package redox

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/peer"
)

// namesPeers says whether the environment has the addresses of all nodes.
func namesPeers() bool { return Getenv("REDOX_PEERS") != "" }

func errNoPeers(nodes int) error {
	return fault.New(fault.Invalid, "%d nodes are to exchange samples, and nothing says how they find each other: set "+
		"REDOX_PEERS=host:port,host:port,... (one for each node, in their order) and REDOX_TOKEN (at least %d bytes, the same "+
		`on all of them) or REDOX_TLS_CA, REDOX_TLS_CERT and REDOX_TLS_KEY; or pass exchange="off": each node then reads what `+
		"its ranks need from shared storage", nodes, peer.TokenLeast)
}

// staticPeers are the nodes as REDOX_PEERS has them, or nil. Each data set of a program has other ports, a stride on.
func staticPeers(nodes, ordinal int) ([]peer.Card, error) {
	if !namesPeers() {
		return nil, nil
	}
	text := Getenv("REDOX_PEERS")
	bad := func(why string) error {
		return fault.New(fault.Invalid, "the environment has REDOX_PEERS=%q: %s", text, why)
	}
	entries := strings.Split(text, ",")
	if len(entries) != nodes {
		return nil, bad("expected " + strconv.Itoa(nodes) + " addresses host:port, one for each node")
	}
	hosts, ports := make([]string, nodes), make([]int, nodes)
	for node, entry := range entries {
		host, port, err := net.SplitHostPort(strings.TrimSpace(entry))
		number, err2 := strconv.ParseUint(port, 10, 16)
		if err != nil || err2 != nil || host == "" || number == 0 {
			return nil, bad(strconv.Quote(entry) + " is no address host:port")
		}
		hosts[node], ports[node] = host, int(number)
	}
	cards, stride := make([]peer.Card, nodes), portStride(ports)
	for node, host := range hosts {
		port := ports[node] + ordinal*stride
		if port > maxPort {
			return nil, bad(fmt.Sprintf("each data set of a program has a port of its own, and for this one node %d's would be %d: "+
				"choose lower ones", node, port))
		}
		cards[node] = peer.Card{Node: node, Address: net.JoinHostPort(host, strconv.Itoa(port))}
	}
	return cards, nil
}

const (
	maxPort    = 1<<16 - 1
	portsApart = 64 // data sets of a program of which none gets the port of another node's
)

// portStride is how far apart the ports of a program's data sets are: 1, or more where nodes share a machine and have
// ports near each other, so that what one node adds to its port never meets what another does.
func portStride(ports []int) int {
	ports = slices.Compact(slices.Sorted(slices.Values(ports)))
	for stride := 1; ; stride++ {
		if !slices.ContainsFunc(ports, func(a int) bool {
			return slices.ContainsFunc(ports, func(b int) bool {
				return a > b && (a-b)%stride == 0 && (a-b)/stride < portsApart
			})
		}) {
			return stride
		}
	}
}

// identity is what this node proves itself with: certificate files; what a token derives; else a key of its own, whose
// fingerprint is on its card.
func identity(static bool) (peer.Identity, error) {
	token := Getenv("REDOX_TOKEN")
	ca, cert, key := Getenv("REDOX_TLS_CA"), Getenv("REDOX_TLS_CERT"), Getenv("REDOX_TLS_KEY")
	switch {
	case ca != "" && cert != "" && key != "":
		return peer.Files(ca, cert, key)
	case ca != "" || cert != "" || key != "":
		return nil, fault.New(fault.Invalid, "the environment has some of REDOX_TLS_CA, REDOX_TLS_CERT and REDOX_TLS_KEY: expected "+
			"all three or none")
	case token != "":
		id, err := peer.Token([]byte(token))
		if err != nil {
			return nil, fault.Wrap(fault.Invalid, err, "REDOX_TOKEN")
		}
		return id, nil
	case static:
		return nil, fault.New(fault.Invalid, "the environment has REDOX_PEERS but neither REDOX_TOKEN (at least %d random bytes, the "+
			"same on all nodes) nor REDOX_TLS_CA, REDOX_TLS_CERT and REDOX_TLS_KEY", peer.TokenLeast)
	}
	return peer.Pinned(), nil
}

// listen is the one address that the mesh listens on.
func (o *meshOptions) listen(static []peer.Card, node int) (string, error) {
	if o.Listen != "" {
		return o.Listen, nil
	}
	port, host := "0", ""
	if static != nil {
		host, port, _ = net.SplitHostPort(static[node].Address)
	}
	choice := o.Interface
	if choice == "" {
		choice = Getenv("REDOX_INTERFACE")
	}
	var address netip.Addr
	var err error
	switch {
	case choice != "":
		address, err = ofInterface(choice)
	case static != nil:
		if address, err = resolve("REDOX_PEERS", host); err == nil {
			address = outward(host, address)
		}
	default:
		address, err = reaching(o.Reach)
	}
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(address.String(), port), nil
}

// ofInterface is the address of an interface by its name, or the address itself.
func ofInterface(choice string) (netip.Addr, error) {
	if address, err := netip.ParseAddr(choice); err == nil {
		return address, nil
	}
	i, err := net.InterfaceByName(choice)
	if err != nil {
		return netip.Addr{}, fault.Wrap(fault.Invalid, err, "interface %q: expected the name of a network interface, or an address", choice)
	}
	addresses, err := i.Addrs()
	if err != nil {
		return netip.Addr{}, fault.Wrap(fault.IO, err, "addresses of interface %q", choice)
	}
	if best, ok := global(addresses); ok {
		return best, nil
	}
	return netip.Addr{}, fault.New(fault.Invalid, "interface %q has no address that others could reach", choice)
}

// global picks the address that is good for others, IPv4 first.
func global(addresses []net.Addr) (best netip.Addr, ok bool) {
	for _, a := range addresses {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue
		}
		address := prefix.Addr().Unmap()
		if address.IsLinkLocalUnicast() || address.IsMulticast() {
			continue
		}
		if !ok || address.Is4() && !best.Is4() {
			best, ok = address, true
		}
	}
	return best, ok
}

// resolve looks up a host, IPv4 first.
func resolve(what, host string) (netip.Addr, error) {
	if address, err := netip.ParseAddr(host); err == nil {
		return address, nil
	}
	found, err := net.LookupHost(host)
	if err != nil {
		return netip.Addr{}, fault.Wrap(fault.Invalid, err, "%s: look up %q", what, host)
	}
	var first netip.Addr
	for _, text := range found {
		address, err := netip.ParseAddr(text)
		if err == nil && (!first.IsValid() || address.Is4() && !first.Is4()) {
			first = address
		}
	}
	return first, nil
}

// reaching is the address that this node has on the way to a host, as the routes are; nothing is sent. The host may be
// this one: its name may then mean a loopback address, which would be of no use to the others.
func reaching(host string) (netip.Addr, error) {
	if host == "" {
		host = Getenv("MASTER_ADDR")
	}
	if host == "" {
		return netip.Addr{}, fault.New(fault.Invalid, "which address to listen on is not known: set REDOX_INTERFACE to the name or "+
			"the address of the network interface that connects the nodes, or MASTER_ADDR")
	}
	target, err := resolve("MASTER_ADDR", host)
	if err != nil {
		return target, err
	}
	address, err := source(target)
	if err != nil {
		return address, fault.Wrap(fault.Invalid, err, "no route to %s, where the nodes meet; REDOX_INTERFACE chooses an interface", host)
	}
	return outward(host, address), nil
}

// outward replaces a loopback address that a name means on its own machine alone, as Debian's 127.0.1.1: the address of
// the default route is the best guess.
func outward(host string, address netip.Addr) netip.Addr {
	if _, err := netip.ParseAddr(host); err == nil || !address.IsLoopback() || host == "localhost" {
		return address
	}
	if found, err := source(netip.AddrFrom4([4]byte{192, 0, 2, 1})); err == nil {
		return found
	}
	return address
}

// source is the address from which this machine would send to another.
func source(target netip.Addr) (netip.Addr, error) {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(target, 9)))
	if err != nil {
		return netip.Addr{}, err
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}
