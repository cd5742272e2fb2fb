package pack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
)

// Damage is one thing that is wrong with a data set; -1 for what it doesn't concern.
type Damage struct {
	Path   string `json:"path"` // below the data set
	Shard  int64  `json:"shard"`
	Chunk  int64  `json:"chunk"`
	Sample int64  `json:"sample"` // stored number
	What   string `json:"what"`
}

// VerifyReport is what Verify found.
type VerifyReport struct {
	Samples  uint64   `json:"samples"`
	Chunks   uint32   `json:"chunks"`
	Shards   int      `json:"shards"`
	Bytes    uint64   `json:"bytes"` // read
	Damage   []Damage `json:"damage"`
	More     uint64   `json:"more"`     // damage beyond the first maxDamage
	Repaired []string `json:"repaired"` // files written anew
}

// maxDamage is how many findings are listed.
const maxDamage = 10_000

// verifier is one run of Verify.
type verifier struct {
	ctx      context.Context
	path     string
	m        chunk.Manifest
	index    chunk.Index
	layout   *chunk.Layout
	progress func(done, total uint64)
	total    uint64

	digests [][32]byte // of the chunks, by the worker that had it
	label   int

	mu     sync.Mutex // guards what follows
	report VerifyReport
	labels labelCounts
	source uint64 // one more than the largest source number
}

// Verify reads a data set from end to end, shard by shard in one sequential pass each, and lists all damage: every
// checksum, every decoded sample against what was packed, counts, index against shards. repair rebuilds a lost or
// damaged index, and a lost manifest as far as the shards tell (not which sources were skipped). The error is for what
// could not be verified at all. progress (bytes) may be nil; it is called from one goroutine.
func Verify(ctx context.Context, path string, repair bool, progress func(done, total uint64)) (VerifyReport, error) {
	v := &verifier{ctx: ctx, path: path, progress: progress}
	v.report.Damage, v.report.Repaired = []Damage{}, []string{}
	var err error
	v.m, err = chunk.LoadManifest(dirFiles(path))
	rebuild := false
	if err != nil {
		kind := fault.KindOf(err)
		if kind == fault.IO || kind == fault.Version || kind == fault.NotDataset && !repair {
			return v.report, inPath(err, path)
		}
		v.found(chunk.ManifestName, -1, err)
		if !repair {
			return v.report, nil
		}
		if err := v.rebuildManifest(); err != nil {
			return v.report, inPath(err, path)
		}
		rebuild = true
	} else if err := v.findIndex(repair); err != nil {
		return v.report, inPath(err, path)
	}
	v.layout = chunk.NewLayout(v.m.Schema)
	v.label = labelAt(v.m.Schema, v.layout)
	v.report.Samples, v.report.Chunks, v.report.Shards = v.m.Samples, v.m.Chunks, len(v.m.Shards)
	if err := v.shards(); err != nil {
		return v.report, err
	}
	v.compareFingerprint(rebuild)
	slices.SortStableFunc(v.report.Damage, func(a, b Damage) int {
		return slices.Compare([]int64{a.Shard, a.Chunk, a.Sample}, []int64{b.Shard, b.Chunk, b.Sample})
	})
	if rebuild {
		return v.report, v.publishManifest()
	}
	return v.report, nil
}

func inPath(err error, path string) error {
	var f *fault.Error
	if errors.As(err, &f) && f.Path == "" {
		f.Path = path
		f.Message = path + ": " + f.Message
	}
	return err
}

// found lists damage.
func (v *verifier) found(name string, shard int64, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	d := Damage{Path: name, Shard: shard, Chunk: -1, Sample: -1, What: err.Error()}
	var f *fault.Error
	if errors.As(err, &f) {
		d.Shard, d.Chunk, d.Sample = max(d.Shard, f.Shard), f.Chunk, f.Sample
	}
	if len(v.report.Damage) >= maxDamage {
		v.report.More++
		return
	}
	v.report.Damage = append(v.report.Damage, d)
}

// shards reads all shards one after the other; chunks are checked by workers meanwhile.
func (v *verifier) shards() error {
	for _, s := range v.m.Shards {
		v.total += s.Bytes
	}
	v.digests = make([][32]byte, len(v.index.Entries))
	workers := defaultWorkers()
	work := make(chan piece, workers)
	free := make(chan []byte, 2*workers+1)
	for range cap(free) {
		free <- nil
	}
	var wg sync.WaitGroup
	for range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for p := range work {
				v.check(p)
				free <- p.bytes
			}
		}()
	}
	base, err := part{}, error(nil)
	parts := slices.Clone(v.m.Parts)
	for i := range v.m.Shards {
		for len(parts) > 0 && i == base.shard+parts[0].Shards {
			base = part{base.shard + parts[0].Shards, base.chunk + uint64(parts[0].Chunks), base.sample + parts[0].Samples}
			parts = parts[1:]
		}
		if err = v.shard(i, base, work, free); err != nil {
			break
		}
	}
	close(work)
	wg.Wait()
	return err
}

// part is where the numbers of a part start.
type part struct {
	shard         int
	chunk, sample uint64
}

// piece is a chunk that has been read.
type piece struct {
	bytes []byte
	entry chunk.Entry
	base  part
}

// shard reads one shard file.
func (v *verifier) shard(i int, base part, work chan<- piece, free <-chan []byte) error {
	s := v.m.Shards[i]
	f, err := os.Open(filepath.Join(v.path, filepath.FromSlash(s.Name)))
	if err != nil {
		v.found(s.Name, int64(i), failed(err, "open", s.Name))
		return v.advance(s.Bytes)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return failed(err, "stat", s.Name)
	}
	if uint64(info.Size()) != s.Bytes {
		v.found(s.Name, int64(i), fault.New(fault.Corrupt, "shard has %d bytes, not %d", info.Size(), s.Bytes))
	}
	first, _ := slices.BinarySearchFunc(v.index.Entries, uint32(i), func(e chunk.Entry, shard uint32) int { return int(int64(e.Shard) - int64(shard)) })
	h, _, err := chunk.ReadShardHeader(f, info.Size())
	if err != nil {
		v.found(s.Name, int64(i), err)
	} else if int(h.Number)+base.shard != i || h.Chunks != s.Chunks || h.Samples != s.Samples || h.Bytes != s.Bytes {
		v.found(s.Name, int64(i), fault.New(fault.Corrupt, "shard header is of another shard than the manifest says"))
	}
	entries := v.index.Entries[first : first+int(s.Chunks)]
	var sum uint32
	at := uint64(0)
	read := func(to uint64, b []byte) ([]byte, error) { // all bytes go by here, in order
		b = slices.Grow(b[:0], int(to-at))[:to-at]
		n, err := f.ReadAt(b, int64(at))
		if err != nil && err != io.EOF {
			return nil, failed(err, "read", s.Name)
		}
		sum, at = chunk.SumMore(sum, b[:n]), to
		return b[:n], v.advance(uint64(len(b)))
	}
	var gap []byte
	for _, e := range entries {
		if e.Offset > at {
			if gap, err = read(e.Offset, gap); err != nil {
				return err
			}
		}
		b, err := read(e.Padded(), <-free)
		if err != nil {
			return err
		}
		work <- piece{bytes: b, entry: e, base: base}
	}
	if s.Bytes > at {
		if _, err = read(s.Bytes, gap); err != nil {
			return err
		}
	}
	if sum != uint32(s.Sum) {
		v.found(s.Name, int64(i), fault.New(fault.Corrupt, "shard file: wrong checksum"))
	}
	return nil
}

func (v *verifier) advance(n uint64) error {
	v.report.Bytes += n
	if v.progress != nil {
		v.progress(v.report.Bytes, v.total)
	}
	if err := v.ctx.Err(); err != nil {
		return fault.Wrap(fault.Canceled, err, "verifying was stopped")
	}
	return nil
}

// check looks at one chunk, and if it is damaged, at which samples are.
func (v *verifier) check(p piece) {
	name := v.m.Shards[p.entry.Shard].Name
	view, err := chunk.Parse(p.bytes, p.entry, v.layout)
	if err == nil {
		err = view.CheckContent()
	}
	if err == nil {
		v.digests[p.entry.Chunk] = view.Content()
		if number, first := view.Numbers(); number+p.base.chunk != uint64(p.entry.Chunk) || first+p.base.sample != p.entry.First {
			err = fault.New(fault.Corrupt, "shard %d, chunk %d: its header has other numbers", p.entry.Shard, p.entry.Chunk).At(
				int64(p.entry.Shard), int64(p.entry.Chunk), -1)
		}
		v.count(&view)
	}
	if err == nil {
		return
	}
	v.found(name, int64(p.entry.Shard), err)
	var f *fault.Error
	if errors.As(err, &f) && f.Sample >= 0 {
		return
	}
	if view, err = chunk.ParseUnsummed(p.bytes, p.entry, v.layout); err != nil {
		return // the table is damaged: all samples are lost, as has been said
	}
	for i := range view.Len() {
		if err := view.Check(i); err != nil {
			v.found(name, int64(p.entry.Shard), fmt.Errorf("%w (key %q)", err, view.Key(i)))
		}
	}
}

// count gathers what a rebuilt manifest needs.
func (v *verifier) count(view *chunk.View) {
	var c labelCounts
	if v.label >= 0 {
		var scratch []byte
		c = countLabels(view.Len(), func(i int) int64 {
			body, err := view.Body(i, scratch)
			if err != nil || len(body) < v.label+8 {
				return 0
			}
			return labelIn(body, v.label)
		})
	}
	source := uint64(0)
	for i := range view.Len() {
		source = max(source, view.Source(i)+1)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.labels.add(c)
	v.source = max(v.source, source)
}

// compareFingerprint is the last check, if all chunks are good.
func (v *verifier) compareFingerprint(rebuild bool) {
	if rebuild || len(v.report.Damage) > 0 && slices.ContainsFunc(v.report.Damage, func(d Damage) bool { return d.Shard >= 0 }) {
		return
	}
	c := contents{head: v.m.Head, entries: v.index.Entries, digests: v.digests}
	if f, err := c.fingerprint(); err == nil && f != v.m.Fingerprint {
		v.found(chunk.ManifestName, -1, fault.New(fault.Corrupt, "content has the fingerprint %s, the manifest says %s", f, v.m.Fingerprint))
	}
}
