package peer

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"

	"github.com/quic-go/quic-go"

	"github.com/redox-loader/redox/golib/internal/wire"
)

func verifyChain(leaf *x509.Certificate, rest []*x509.Certificate, roots ...*x509.Certificate) error {
	options := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	for _, root := range roots {
		options.Roots.AddCert(root)
	}
	for _, c := range rest {
		options.Intermediates.AddCert(c)
	}
	_, err := leaf.Verify(options)
	return err
}

func parsePEM(text []byte) (all []*x509.Certificate, err error) {
	for {
		var block *pem.Block
		block, text = pem.Decode(text)
		if block == nil {
			return all, nil
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
}

// tlsConfig is that of both ends: TLS 1.3, certificates from both, nothing that can be replayed or resumed. The standard
// verification is off since names and authorities are ours; verify is what takes its place.
func (m *Mesh) tlsConfig(verify func(tls.ConnectionState) error) *tls.Config {
	return &tls.Config{
		Certificates:           []tls.Certificate{m.certificate},
		ServerName:             "redox",
		NextProtos:             []string{wire.Protocol},
		MinVersion:             tls.VersionTLS13,
		ClientAuth:             tls.RequireAnyClientCert,
		InsecureSkipVerify:     true,
		VerifyConnection:       verify,
		SessionTicketsDisabled: true,
	}
}

// identify says which node the other end's certificate belongs to. It runs in the handshake, and again where the result
// is needed, since a TLS state carries no room for it.
func (m *Mesh) identify(state tls.ConnectionState) (int, error) {
	certs := state.PeerCertificates
	if len(certs) == 0 {
		return -1, errors.New("it shows no certificate")
	}
	card := func(node int) (Fingerprint, bool) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if node < 0 || node >= len(m.peers) || m.peers[node].card.Fingerprint == (Fingerprint{}) {
			return Fingerprint{}, false
		}
		return m.peers[node].card.Fingerprint, true
	}
	node, err := m.identity.verify(certs[0], certs[1:], card)
	if err == nil && (node >= m.config.Nodes || node == m.config.Node) {
		return -1, errors.New("it names no other node of this job: " + nodeName(node))
	}
	return node, err
}

// verifyClient is the server's check in the handshake: a stranger never comes further.
func (m *Mesh) verifyClient(state tls.ConnectionState) error {
	_, err := m.identify(state)
	return err
}

// verifyServer is the dialer's check in the handshake: it must be the node that was meant.
func (m *Mesh) verifyServer(want int) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		node, err := m.identify(state)
		if err == nil && node >= 0 && node != want {
			return errors.New("it is the certificate of node " + nodeName(node) + ", not of " + nodeName(want))
		}
		return err
	}
}

func (m *Mesh) quicConfig() *quic.Config {
	window := m.config.window()
	most := 0
	for _, n := range m.config.Ranks {
		most = max(most, n)
	}
	// Windows are fixed: what grows by itself cannot be planned. InitialPacketSize stays unset: above 1280 the pacer of
	// this version of quic-go never sleeps.
	return &quic.Config{
		HandshakeIdleTimeout:           handshakeTime / 2,
		MaxIdleTimeout:                 idleTime,
		KeepAlivePeriod:                aliveTime,
		InitialStreamReceiveWindow:     window * 3 / 4, // the rest is for the control stream
		MaxStreamReceiveWindow:         window * 3 / 4,
		InitialConnectionReceiveWindow: window,
		MaxConnectionReceiveWindow:     window,
		MaxIncomingStreams:             1,
		MaxIncomingUniStreams:          int64(min(max(16, 4*m.config.Ranks[m.config.Node]*most), 1024)),
		GetConfigForClient:             nil, // set where the server is made
	}
}

// resetKey lets peers learn at once that a process has ended when its address is used again.
func (m *Mesh) resetKey() *quic.StatelessResetKey {
	var key quic.StatelessResetKey
	if secret := m.identity.secret(); secret != nil {
		copy(key[:], secret)
		key[0] ^= byte(m.config.Node) // each node its own
		key[1] ^= byte(m.config.Node >> 8)
	} else {
		rand.Read(key[:])
	}
	return &key
}
