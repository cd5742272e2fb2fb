package peer

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// Identity is how a node shows who it is, and how it knows the others.
type Identity interface {
	// certificate makes what a node shows, with a key of its own where there is a choice.
	certificate(node int) (tls.Certificate, error)
	// verify says which node a certificate belongs to; -1 if it is one of us, but no one in particular. card is the
	// fingerprint of a node's card.
	verify(leaf *x509.Certificate, rest []*x509.Certificate, card func(node int) (Fingerprint, bool)) (int, error)
	// seal authenticates a card; nil if this identity has nothing to do that with.
	seal(card []byte) []byte
	// needsCards is whether nobody can be trusted without a card.
	needsCards() bool
	// secret is something that is the same after a restart, from which keys may be derived, or nil.
	secret() []byte
	// hint ends the message of a refusal: what to look at.
	hint() string
}

// Fingerprint is the SHA-256 of a certificate's public key (SubjectPublicKeyInfo).
type Fingerprint [sha256.Size]byte

func fingerprintOf(leaf *x509.Certificate) Fingerprint {
	return sha256.Sum256(leaf.RawSubjectPublicKeyInfo)
}

// nodeName is what a certificate calls a node.
func nodeName(node int) string { return fmt.Sprintf("node-%d.redox", node) }

// namedNode is the node that a certificate names, or -1.
func namedNode(leaf *x509.Certificate) int {
	for _, name := range leaf.DNSNames {
		number, found := strings.CutPrefix(name, "node-")
		number, is := strings.CutSuffix(number, ".redox")
		if n, err := strconv.Atoi(number); found && is && err == nil && n >= 0 && name == nodeName(n) {
			return n
		}
	}
	return -1
}

// template is that of all certificates made here. They are for ever: what ends is the key, with its process.
func template(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: name},
		DNSNames:     []string{name},
		NotBefore:    time.Unix(0, 0),
		NotAfter:     time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

// pinned is the identity of a process: a key that the others know from its card.
type pinned struct{}

// Pinned is the identity that needs no configuration: a key made now, that is told to the others with the card, and ends
// with the process. Who can replace cards on their way can replace nodes.
func Pinned() Identity { return pinned{} }

func (pinned) certificate(node int) (tls.Certificate, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	t := template(nodeName(node))
	der, err := x509.CreateCertificate(rand.Reader, t, t, public, private)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, err
}

func (pinned) verify(leaf *x509.Certificate, _ []*x509.Certificate, card func(int) (Fingerprint, bool)) (int, error) {
	node := namedNode(leaf)
	want, known := card(node)
	switch {
	case node < 0 || !known:
		return -1, fmt.Errorf("it names no node of this job: %q", leaf.DNSNames)
	case want != fingerprintOf(leaf):
		return -1, strange{fmt.Errorf("it is not the key on the card of node %d", node)}
	}
	return node, nil
}

func (pinned) seal([]byte) []byte { return nil }
func (pinned) needsCards() bool   { return true }
func (pinned) secret() []byte     { return nil }
func (pinned) hint() string       { return "cards of another run, or of an earlier start of that node?" }

// strange marks the refusal of a key that may be that of a restarted node.
type strange struct{ error }

// TokenLeast is the length of the shortest token: whoever sees a certificate can try tokens at leisure.
const TokenLeast = 16

// token is the identity of all who know a secret: it derives the key of a certificate authority.
type token struct {
	word      []byte
	authority *x509.Certificate
	key       ed25519.PrivateKey
}

// Token is the identity of all who hold the token. Each holder can act as any node.
func Token(word []byte) (Identity, error) {
	if len(word) < TokenLeast {
		return nil, fault.New(fault.Invalid, "the token has %d bytes; it must be at least %d random ones, since whoever "+
			"reaches a port can guess at a short one", len(word), TokenLeast)
	}
	seed, err := hkdf.Key(sha256.New, word, nil, "redox/1 certificate authority", ed25519.SeedSize)
	if err != nil {
		return nil, fault.Wrap(fault.Internal, err, "derive a key from the token")
	}
	t := template("redox")
	t.DNSNames, t.KeyUsage, t.IsCA, t.BasicConstraintsValid = nil, x509.KeyUsageCertSign, true, true
	key := ed25519.NewKeyFromSeed(seed)
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, fault.Wrap(fault.Internal, err, "make the token's authority")
	}
	authority, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fault.Wrap(fault.Internal, err, "make the token's authority")
	}
	return &token{bytes.Clone(word), authority, key}, nil
}

func (t *token) certificate(node int) (tls.Certificate, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template(nodeName(node)), t.authority, public, t.key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, err
}

func (t *token) verify(leaf *x509.Certificate, rest []*x509.Certificate, _ func(int) (Fingerprint, bool)) (int, error) {
	if err := verifyChain(leaf, rest, t.authority); err != nil {
		return -1, errors.New("it was not made with our token")
	}
	node := namedNode(leaf)
	if node < 0 {
		return -1, fmt.Errorf("it names no node: %q", leaf.DNSNames)
	}
	return node, nil
}

func (t *token) seal(card []byte) []byte {
	mac := hmac.New(sha256.New, t.secret())
	mac.Write([]byte("redox/1 card\x00"))
	mac.Write(card)
	return mac.Sum(nil)
}

func (t *token) needsCards() bool { return false }
func (t *token) hint() string     { return "is the token the same on all nodes?" }

func (t *token) secret() []byte {
	key, err := hkdf.Key(sha256.New, t.word, nil, "redox/1 secret", sha256.Size)
	if err != nil {
		panic(err) // only for lengths that SHA-256 does not have
	}
	return key
}

// files is the identity that somebody's certificates give.
type files struct {
	cert  tls.Certificate
	roots []*x509.Certificate
}

// Files is the identity of a certificate and its key, made by one of the authorities in a file (PEM, all three). Each
// holder of such a certificate is one of us; which node it may be is up to its name, node-N.redox, if it has one, else
// to its card, if there is one.
func Files(authorities, certificate, key string) (Identity, error) {
	cert, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "load the certificate %s with the key %s", certificate, key)
	}
	text, err := os.ReadFile(authorities)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "load the authorities")
	}
	roots, err := parsePEM(text)
	if err != nil || len(roots) == 0 {
		return nil, fault.New(fault.Invalid, "%s holds no certificates: %v", authorities, err)
	}
	return &files{cert, roots}, nil
}

func (f *files) certificate(int) (tls.Certificate, error) { return f.cert, nil }

func (f *files) verify(leaf *x509.Certificate, rest []*x509.Certificate, card func(int) (Fingerprint, bool)) (int, error) {
	if err := verifyChain(leaf, rest, f.roots...); err != nil {
		return -1, err
	}
	return namedNode(leaf), nil
}

func (f *files) seal([]byte) []byte { return nil }
func (f *files) needsCards() bool   { return false }
func (f *files) secret() []byte     { return nil }
func (f *files) hint() string {
	return "was its certificate made by one of our authorities, and is it still valid?"
}
