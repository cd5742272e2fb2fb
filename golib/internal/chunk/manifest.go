package chunk

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// Names inside a data set.
const (
	ManifestName = "manifest.json"
	IndexName    = "chunks.idx"
	ShardDir     = "shards"
	// WorkDir is there while a data set is being packed; a journal in it and no manifest mean half-packed.
	WorkDir     = ".redox-pack"
	JournalName = WorkDir + "/journal"
)

// ShardName is the path of a shard of an undivided data set.
func ShardName(number int) string { return fmt.Sprintf("%s/%05d.rdx", ShardDir, number) }

// Head is what is known of a data set before its last sample: it is in the manifest, and in the header of every
// shard, so that a lost manifest can be rebuilt.
type Head struct {
	Schema      Schema         `json:"schema"`
	Classes     []string       `json:"classes,omitempty"` // names of the labels 0, 1, …
	Codec       string         `json:"codec"`
	CodecReason string         `json:"codec_reason,omitempty"` // why "auto" took it
	ChunkSize   int64          `json:"chunk_size"`             // raw bytes at which chunks are cut
	ShardSize   int64          `json:"shard_size"`             // stored bytes at which shards are cut
	Shuffled    bool           `json:"shuffled"`               // the samples were permuted with Seed when packed
	Seed        uint64         `json:"seed"`
	Source      string         `json:"source,omitempty"` // identity of what was packed and how
	Meta        map[string]any `json:"meta,omitempty"`   // the packer's own
}

// Shard is one file of chunks.
type Shard struct {
	Name    string `json:"name"` // path inside the data set, with slashes
	Bytes   uint64 `json:"bytes"`
	Chunks  uint32 `json:"chunks"`
	Samples uint64 `json:"samples"`
	Sum     Hex32  `json:"crc32c"` // of the whole file
}

// Part is a run of shards that one machine packed. Numbers in the chunk headers count inside the part.
type Part struct {
	Shards  int    `json:"shards"`
	Chunks  uint32 `json:"chunks"`
	Samples uint64 `json:"samples"`
	Sources uint64 `json:"sources"` // source numbers of this part are below it
}

// Manifest is manifest.json: what the data set is. A directory is a data set once it is there.
type Manifest struct {
	Format   string   `json:"format"` // "redox 1.0": major and minor version
	Requires []string `json:"requires"`
	Head
	Fingerprint string            `json:"fingerprint"` // of the content: hex SHA-256, see Fingerprint
	Samples     uint64            `json:"samples"`
	Chunks      uint32            `json:"chunks"`
	Bytes       uint64            `json:"bytes"`        // raw
	StoredBytes uint64            `json:"stored_bytes"` // of chunks as they are read, without padding
	LabelField  string            `json:"label_field,omitempty"`
	ClassCounts map[string]uint64 `json:"class_counts,omitempty"` // samples by label, unless there are too many labels
	Rho         *float64          `json:"rho"`                    // correlation of labels inside chunks: 0 shuffled, 1 sorted; null unknown
	Skipped     uint64            `json:"skipped"`                // sources that could not be read and were left out
	Index       IndexFile         `json:"index"`
	Shards      []Shard           `json:"shards"`
	Parts       []Part            `json:"parts"`
	Checksum    Hex32             `json:"checksum"` // CRC-32C of the file with zeros in place of these 8 digits; the last field
}

// IndexFile ties chunks.idx to the manifest.
type IndexFile struct {
	Bytes uint64 `json:"bytes"`
	Sum   Hex32  `json:"crc32c"`
}

// Hex32 is a checksum, 8 hex digits in JSON.
type Hex32 uint32

// MarshalText makes it hex digits.
func (h Hex32) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%08x", uint32(h)), nil }

// UnmarshalText reads them.
func (h *Hex32) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil || len(b) != 4 || string(text) != hex.EncodeToString(b) { // one spelling, so that no flipped bit goes unseen
		return fmt.Errorf("%q is not a checksum of 8 hex digits", text)
	}
	*h = Hex32(binary.BigEndian.Uint32(b))
	return nil
}

const checksumZero = `"checksum": "00000000"`

// Encode makes the bytes of manifest.json. Equal manifests give equal bytes.
func (m Manifest) Encode() ([]byte, error) {
	m.Format, m.Checksum = fmt.Sprintf("redox %d.%d", Major, Minor), 0
	if m.Requires == nil {
		m.Requires = []string{}
	}
	b, err := encodeJSON(m, "  ")
	if err != nil {
		return nil, err
	}
	at := bytes.LastIndex(b, []byte(checksumZero))
	copy(b[at+len(checksumZero)-9:], fmt.Sprintf("%08x", Sum(b)))
	return b, nil
}

func encodeJSON(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "manifest does not fit JSON")
	}
	return b.Bytes(), nil
}

// ParseManifest reads manifest.json and checks it by itself.
func ParseManifest(b []byte) (Manifest, error) {
	var version struct {
		Format   string   `json:"format"`
		Requires []string `json:"requires"`
	}
	var m Manifest
	if err := json.Unmarshal(b, &version); err != nil {
		return m, fault.Wrap(fault.Format, err, "manifest is not JSON of ours")
	}
	var major, minor int
	if _, err := fmt.Sscanf(version.Format, "redox %d.%d", &major, &minor); err != nil {
		return m, fault.New(fault.Format, "manifest of format %q is not ours", version.Format)
	}
	if major != Major || len(version.Requires) > 0 {
		return m, fault.New(fault.Version, "data set is of format %q and needs %v; this reads %d.x", version.Format, version.Requires, Major)
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fault.Wrap(fault.Format, err, "manifest is not JSON of ours")
	}
	at := bytes.LastIndex(b, []byte(`"checksum": "`)) + len(checksumZero) - 9
	if at+8 > len(b) {
		return m, fault.New(fault.Corrupt, "manifest is cut off")
	}
	zeroed := bytes.Clone(b)
	copy(zeroed[at:], "00000000")
	if Sum(zeroed) != uint32(m.Checksum) {
		return m, fault.New(fault.Corrupt, "manifest: wrong checksum (it is not meant to be edited)")
	}
	return m, m.check()
}

func (m *Manifest) check() error {
	if err := m.Schema.Validate(); err != nil {
		return fault.Wrap(fault.Format, err, "manifest")
	}
	var chunks, samples uint64
	seen := make(map[string]bool, len(m.Shards))
	for i, s := range m.Shards {
		clean := path.Clean(s.Name) == s.Name && !path.IsAbs(s.Name) && !strings.HasPrefix(s.Name, "..") && !strings.ContainsAny(s.Name, "\\\x00")
		if !clean || seen[s.Name] {
			return fault.New(fault.Format, "manifest: shard %d has the impossible name %q", i, s.Name)
		}
		seen[s.Name] = true
		if s.Bytes%Align != 0 || s.Bytes > maxFixed || s.Samples > 1<<50 {
			return fault.New(fault.Format, "manifest: shard %d can't have %d bytes and %d samples", i, s.Bytes, s.Samples)
		}
		chunks += uint64(s.Chunks)
		samples += s.Samples
	}
	if chunks != uint64(m.Chunks) || samples != m.Samples {
		return fault.New(fault.Format, "manifest: the shards' %d chunks and %d samples are not the %d and %d of the data set", chunks, samples,
			m.Chunks, m.Samples)
	}
	return m.checkParts()
}

func (m *Manifest) checkParts() error {
	shards, chunks, samples := 0, uint64(0), uint64(0)
	for _, p := range m.Parts {
		if p.Shards < 0 || p.Shards > len(m.Shards) {
			return fault.New(fault.Format, "manifest: a part can't have %d shards", p.Shards)
		}
		shards += p.Shards
		chunks += uint64(p.Chunks)
		samples += p.Samples
	}
	if shards != len(m.Shards) || chunks != uint64(m.Chunks) || samples != m.Samples {
		return fault.New(fault.Format, "manifest: the parts don't add up to the data set")
	}
	return nil
}

// Fingerprint digests what a data set holds and how it is cut, not how it is stored: SHA-256 over "redox 1", the
// schema as compact JSON, and of every chunk its samples (u32), raw bytes (u64) and content digest. The codec, shards,
// sources, keys and classes play no part.
type Fingerprint struct {
	sum []byte
}

// NewFingerprint starts one; Add the chunks in order.
func NewFingerprint() *Fingerprint { return &Fingerprint{} }

// Add takes the next chunk.
func (f *Fingerprint) Add(e Entry, content [32]byte) {
	f.sum = binary.LittleEndian.AppendUint32(f.sum, e.Samples)
	f.sum = binary.LittleEndian.AppendUint64(f.sum, e.Raw)
	f.sum = append(f.sum, content[:]...)
}

// Hex finishes it.
func (f *Fingerprint) Hex(s Schema) (string, error) {
	schema, err := encodeJSON(s, "")
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(slices.Concat([]byte("redox 1"), bytes.TrimSpace(schema), f.sum))
	return hex.EncodeToString(sum[:]), nil
}

// Files reads the small files of a data set, wherever it is; a missing one is fs.ErrNotExist.
type Files interface {
	ReadFile(name string) ([]byte, error)
}

// Dataset is an opened data set: what every engine keeps of it.
type Dataset struct {
	Manifest Manifest
	Index    Index
	Layout   *Layout
}

// Open reads manifest and index and checks one against the other.
func Open(files Files) (*Dataset, error) {
	m, err := LoadManifest(files)
	if err != nil {
		return nil, err
	}
	x, err := LoadIndex(files, &m)
	if err != nil {
		return nil, err
	}
	return &Dataset{Manifest: m, Index: x, Layout: NewLayout(m.Schema)}, nil
}

// LoadManifest reads the manifest; without one: fault.NotDataset that says what is there instead.
func LoadManifest(files Files) (Manifest, error) {
	b, err := files.ReadFile(ManifestName)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := files.ReadFile(JournalName); err == nil {
			return Manifest{}, fault.New(fault.NotDataset, "half-packed: pack it again to finish")
		}
		if _, err := files.ReadFile(IndexName); err == nil {
			return Manifest{}, fault.New(fault.NotDataset, "has chunks but no %s", ManifestName)
		}
		return Manifest{}, fault.New(fault.NotDataset, "not a data set: no %s", ManifestName)
	}
	if err != nil {
		return Manifest{}, fault.Wrap(fault.IO, err, "read %s", ManifestName)
	}
	return ParseManifest(b)
}

// LoadIndex reads the index that belongs to a manifest.
func LoadIndex(files Files, m *Manifest) (Index, error) {
	b, err := files.ReadFile(IndexName)
	if errors.Is(err, fs.ErrNotExist) {
		return Index{}, fault.New(fault.Format, "%s is missing: redox verify --repair rebuilds it", IndexName)
	}
	if err != nil {
		return Index{}, fault.Wrap(fault.IO, err, "read %s", IndexName)
	}
	if uint64(len(b)) != m.Index.Bytes || Sum(b) != uint32(m.Index.Sum) {
		return Index{}, fault.New(fault.Corrupt, "%s is not the one of the manifest: redox verify --repair rebuilds it", IndexName)
	}
	x, err := ParseIndex(b)
	if err != nil {
		return Index{}, err
	}
	return x, m.checkIndex(&x)
}

func (m *Manifest) checkIndex(x *Index) error {
	if len(x.Entries) != int(m.Chunks) || x.Samples() != m.Samples {
		return fault.New(fault.Format, "index has %d chunks and %d samples, manifest %d and %d", len(x.Entries), x.Samples(), m.Chunks, m.Samples)
	}
	chunks := make([]uint32, len(m.Shards))
	for i := range x.Entries {
		e := &x.Entries[i]
		if int(e.Shard) >= len(m.Shards) || e.Offset+e.Stored > m.Shards[e.Shard].Bytes {
			return e.corrupt(-1, "index: beyond the shard's end")
		}
		chunks[e.Shard]++
	}
	for i, n := range chunks {
		if n != m.Shards[i].Chunks {
			return fault.New(fault.Format, "index has %d chunks of shard %d, manifest %d", n, i, m.Shards[i].Chunks).At(int64(i), -1, -1)
		}
	}
	return nil
}
