package peer_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/peer"
	"github.com/redox-loader/redox/golib/internal/peer/peertest"
)

// authority is somebody's, which makes certificates.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	dir  string
}

func newAuthority(t *testing.T) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{t: t, key: key, dir: t.TempDir()}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true,
		BasicConstraintsValid: true, NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0), KeyUsage: x509.KeyUsageCertSign}
	a.cert = a.sign("ca", tmpl, tmpl, key)
	return a
}

func (a *authority) sign(name string, tmpl, parent *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		a.path(name + ".pem"): {Type: "CERTIFICATE", Bytes: der}, a.path(name + ".key"): {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return c
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

// identity makes a certificate with a name, valid until a time.
func (a *authority) identity(name string, until time.Time) peer.Identity {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	a.sign(name, &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{name}, NotBefore: time.Unix(0, 0),
		NotAfter: until}, a.cert, key)
	id, err := peer.Files(a.path("ca.pem"), a.path(name+".pem"), a.path(name+".key"))
	if err != nil {
		a.t.Fatal(err)
	}
	return id
}

func TestCertificateFiles(t *testing.T) {
	ours, others := newAuthority(t), newAuthority(t)
	never := time.Unix(1<<33, 0)
	for name, c := range map[string]struct {
		ids [2]peer.Identity
		ok  bool
	}{
		"hosts' names":      {[2]peer.Identity{ours.identity("a.example", never), ours.identity("b.example", never)}, true},
		"nodes' names":      {[2]peer.Identity{ours.identity("node-0.redox", never), ours.identity("node-1.redox", never)}, true},
		"the wrong node":    {[2]peer.Identity{ours.identity("node-0.redox", never), ours.identity("node-0.redox", never)}, false},
		"another authority": {[2]peer.Identity{ours.identity("a.example", never), others.identity("b.example", never)}, false},
		"expired":           {[2]peer.Identity{ours.identity("a.example", never), ours.identity("b.example", time.Unix(1, 0))}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t, func(node int, config *peer.Config) { config.Identity = c.ids[node] })
				p.meet(peer.Addresses([]string{peertest.Host(1) + ":700", peertest.Host(2) + ":700"})...)
				errs, _ := p.await(10 * time.Second)
				for _, err := range errs {
					if (err == nil) != c.ok || err != nil && fault.KindOf(err) != fault.Peer {
						t.Error(err)
					}
				}
				p.close()
			})
		})
	}
	if _, err := peer.Files(ours.path("ca.pem"), ours.path("missing"), ours.path("ca.key")); fault.KindOf(err) != fault.Invalid {
		t.Error(err)
	}
	if _, err := peer.Files(ours.path("ca.key"), ours.path("ca.pem"), ours.path("ca.key")); fault.KindOf(err) != fault.Invalid {
		t.Error(err)
	}
}

func selfSigned(t testing.TB, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
