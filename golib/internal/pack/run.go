package pack

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
)

// run is what Writer and Tree have in common: target, assembly, and the decisions that they need.
type run struct {
	o        Options
	identity string
	layout   *chunk.Layout
	t        *target
	asm      *assembly
	shards   *shardWriter
	decided  decided
	begun    bool // codec and chunk size are settled
	last     bool // an earlier run has written the last shard already
	resumed  done // where it had come to
	skipped  []Skipped
}

// newRun opens the target; a complete data set of the same identity is returned instead.
func newRun(ctx context.Context, dst string, o Options) (*run, *chunk.Manifest, error) {
	if err := o.check(); err != nil {
		return nil, nil, err
	}
	identity, err := o.identity()
	if err != nil {
		return nil, nil, err
	}
	t, m, err := openTarget(dst, identity, &o)
	if err != nil || m != nil {
		return nil, m, err
	}
	r := &run{o: o, identity: identity, layout: chunk.NewLayout(o.Schema), t: t, shards: &shardWriter{dir: dst}}
	r.asm = newAssembly(ctx, r.layout, o.Schema, r.shards, o.workers())
	r.asm.note = func(d done) error {
		r.skipped = append(r.skipped, d.Skipped...)
		return t.journal.note(line{Shard: &d})
	}
	if err := r.restore(); err != nil {
		_ = r.stop(err)
		return nil, nil, err
	}
	return r, nil, nil
}

// restore takes over the finished shards of an interrupted run.
func (r *run) restore() error {
	before := &r.t.before
	for i := range before.shards {
		d := &before.shards[i]
		if err := r.shards.adopt(d.Shard); err != nil {
			return err
		}
		r.asm.total.add(d.Labels)
		r.skipped = append(r.skipped, d.Skipped...)
		r.resumed, r.last = *d, d.Last
	}
	r.asm.fresh = done{Next: r.resumed.Next, Samples: r.resumed.Samples}
	if err := r.t.removeUnfinished(r.shards.shards); err != nil {
		return err
	}
	if before.decided != nil {
		r.decided = *before.decided
		return r.settled()
	}
	return nil
}

// adopt reads the chunk headers of a finished shard.
func (w *shardWriter) adopt(s chunk.Shard) error {
	path := filepath.Join(w.dir, filepath.FromSlash(s.Name))
	f, err := os.Open(path)
	if err != nil {
		return failed(err, "resume: open", path)
	}
	defer f.Close()
	found, err := scanShard(f, uint32(len(w.shards)))
	if err != nil {
		return fmt.Errorf("resume: %s: %w", path, err)
	}
	h := found.header
	if h.Bytes != s.Bytes || h.Samples != s.Samples || h.Chunks != s.Chunks || h.FirstChunk != w.chunks || h.First != w.samples {
		return fault.New(fault.Corrupt, "resume: %s is not the shard that the journal says", path).In(path)
	}
	w.entries = append(w.entries, found.entries...)
	w.contents = append(w.contents, found.contents...)
	w.shards = append(w.shards, s)
	w.chunks += uint64(s.Chunks)
	w.samples += s.Samples
	return nil
}

// begin settles chunk size and codec, once, and notes it.
func (r *run) begin(size int64, codec, reason string) error {
	r.decided = decided{ChunkSize: size, Codec: codec, Reason: reason}
	if err := r.t.journal.note(line{Decided: &r.decided}); err != nil {
		return err
	}
	return r.settled()
}

func (r *run) settled() error {
	r.begun = true
	r.asm.codec = chunk.None
	if r.decided.Codec == chunk.LZ4.String() {
		r.asm.codec = chunk.LZ4
	}
	return r.shards.begin(r.head())
}

func (r *run) head() chunk.Head {
	return chunk.Head{
		Schema: r.o.Schema, Classes: r.o.Classes, Codec: r.decided.Codec, CodecReason: r.decided.Reason, ChunkSize: r.decided.ChunkSize,
		ShardSize: r.o.ShardSize, Shuffled: r.o.Shuffle, Seed: r.o.Seed, Source: r.identity, Meta: r.o.Meta,
	}
}

// choose picks the codec by the first chunk.
func (r *run) choose(b *chunk.Builder) (codec, reason string, err error) {
	if r.o.Codec != "auto" {
		return r.o.Codec, "", nil
	}
	if b.Raw() == 0 {
		return "none", "the first chunk is empty", nil
	}
	e, err := b.Encode(chunk.LZ4)
	if err != nil {
		return "", "", err
	}
	saved := 100 * (1 - float64(len(e.Payload))/float64(b.Raw()))
	of := fmt.Sprintf("%.0f %% of the first %d samples (%d bytes)", saved, b.Len(), b.Raw())
	if saved < worthwhile {
		return "none", "lz4 would save only " + of, nil
	}
	return "lz4", "lz4 saves " + of, nil
}

// worthwhile is the percentage that lz4 must save to be worth decoding.
const worthwhile = 10

// finish closes the last shard and publishes. next is one more than the last source number.
func (r *run) finish(next uint64) (chunk.Manifest, error) {
	if err := r.asm.close(); err != nil {
		return chunk.Manifest{}, r.leave(err)
	}
	if r.shards.samples == 0 {
		_ = r.t.discard()
		return chunk.Manifest{}, fault.New(fault.Invalid, "nothing to pack: the source has no samples")
	}
	if !r.last {
		if err := r.shards.finish(true); err != nil {
			return chunk.Manifest{}, r.leave(err)
		}
	}
	m, index, err := r.manifest(next)
	if err != nil {
		return m, r.leave(err)
	}
	b, err := m.Encode()
	if err != nil {
		return m, r.leave(err)
	}
	if err := r.t.publish(index, b); err != nil {
		return m, r.leave(err)
	}
	return chunk.ParseManifest(b)
}

func (r *run) manifest(next uint64) (chunk.Manifest, []byte, error) {
	c := contents{head: r.head(), shards: r.shards.shards, entries: r.shards.entries, digests: r.shards.contents}
	return c.manifest(r.asm.label, &r.asm.total, next, uint64(len(r.skipped)))
}

// contents is all that a manifest of one part is made of, from a run or from a scan.
type contents struct {
	head    chunk.Head
	shards  []chunk.Shard
	entries []chunk.Entry
	digests [][32]byte
}

// manifest makes the manifest and the bytes of the index.
func (c *contents) manifest(label int, labels *labelCounts, sources, skipped uint64) (chunk.Manifest, []byte, error) {
	x := chunk.Index{Entries: c.entries}
	index := x.Append(nil)
	m := chunk.Manifest{
		Head: c.head, Samples: x.Samples(), Chunks: uint32(len(x.Entries)), Shards: c.shards, Skipped: skipped,
		Index: chunk.IndexFile{Bytes: uint64(len(index)), Sum: chunk.Hex32(chunk.Sum(index))},
		Parts: []chunk.Part{{Shards: len(c.shards), Chunks: uint32(len(x.Entries)), Samples: x.Samples(), Sources: sources}},
	}
	for i := range x.Entries {
		m.Bytes += x.Entries[i].Raw
		m.StoredBytes += x.Entries[i].Stored
	}
	if label >= 0 {
		m.LabelField = c.head.Schema.Fields[c.head.Schema.LabelField()].Name
		m.ClassCounts, m.Rho = labels.byName(), labels.rho()
	}
	var err error
	m.Fingerprint, err = c.fingerprint()
	return m, index, err
}

func (c *contents) fingerprint() (string, error) {
	f := chunk.NewFingerprint()
	for i := range c.entries {
		f.Add(c.entries[i], c.digests[i])
	}
	return f.Hex(c.head.Schema)
}

// stop ends the goroutines early and leaves or removes the work.
func (r *run) stop(cause error) error {
	r.asm.cancel(cause)
	_ = r.asm.close()
	return r.leave(cause)
}

// leave gives the target back after an error: kept to be resumed if that is possible and asked for, else removed. It
// returns the cause.
func (r *run) leave(cause error) error {
	r.shards.abandon()
	if r.o.Resume && r.identity != "" {
		r.t.release()
		return cause
	}
	_ = r.t.discard()
	return cause
}
