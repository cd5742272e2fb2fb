package redox

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/pack"
)

// packOptions are those of redox_writer_new and of packing files.
type packOptions struct {
	Fields     fieldList      `json:"fields"`
	Layout     string         `json:"layout"`
	Classes    []string       `json:"classes"`
	Codec      string         `json:"codec"`
	ChunkSize  any            `json:"chunk_size"` // raw bytes, 0: auto
	ShardSize  any            `json:"shard_size"` // 0: 256 MiB
	Shuffle    *bool          `json:"shuffle"`
	Seed       uint64         `json:"seed"`
	Overwrite  bool           `json:"overwrite"`
	Resume     *bool          `json:"resume"`
	SourceHash string         `json:"source_hash"`
	Workers    int            `json:"workers"` // 0: one for each processor
	Memory     any            `json:"memory"`  // bytes for sorting, 0: 512 MiB
	Meta       map[string]any `json:"meta"`
}

// fieldList is the fields of a sample: a list of {"name", "kind"}, in order, or an object {name: kind}.
type fieldList []chunk.Field

// UnmarshalJSON reads either form, keeping the order of an object's names.
func (l *fieldList) UnmarshalJSON(b []byte) error {
	type namedKind struct {
		Name string `json:"name"`
		Kind string `json:"kind"`
	}
	var list []namedKind
	var objects []json.RawMessage
	if err := json.Unmarshal(b, &objects); err == nil {
		for _, o := range objects {
			var f namedKind
			if err := decode(o, &f); err != nil {
				return fault.Wrap(fault.Invalid, err, "fields")
			}
			list = append(list, f)
		}
	} else {
		d := json.NewDecoder(strings.NewReader(string(b)))
		if t, err := d.Token(); err != nil || t != json.Delim('{') {
			return fault.New(fault.Invalid, `fields: expected {"name": "kind", ...} or [{"name", "kind"}, ...]`)
		}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return err
			}
			var kind string
			if err := d.Decode(&kind); err != nil {
				return fault.New(fault.Invalid, "fields: the kind of %q is not a string", name)
			}
			list = append(list, namedKind{name.(string), kind})
		}
	}
	*l = nil
	for _, f := range list {
		field, err := chunk.ParseField(f.Name, f.Kind)
		if err != nil {
			return err
		}
		*l = append(*l, field)
	}
	return nil
}

func (o *packOptions) options() (pack.Options, error) {
	out := pack.Options{
		Schema: chunk.Schema{Fields: o.Fields, Layout: o.Layout}, Classes: o.Classes, Codec: o.Codec,
		Shuffle: o.Shuffle == nil || *o.Shuffle, Seed: o.Seed, Overwrite: o.Overwrite,
		Resume: o.Resume == nil || *o.Resume, SourceHash: o.SourceHash, Workers: o.Workers, Meta: o.Meta,
	}
	for _, size := range []struct {
		into   *int64
		option string
		value  any
	}{{&out.ChunkSize, "chunk_size", o.ChunkSize}, {&out.ShardSize, "shard_size", o.ShardSize}, {&out.Memory, "memory", o.Memory}} {
		var err error
		if *size.into, err = sizeOf(size.option, size.value, 0); err != nil {
			return out, err
		}
	}
	if out.Schema.Layout == "" {
		out.Schema.Layout = "dict"
	}
	if o.Workers < 0 {
		return out, fault.New(fault.Invalid, "workers=%d: expected at least 0", o.Workers)
	}
	return out, nil
}

// Writer writes a data set sample by sample. Safe for concurrent use; samples are taken one at a time.
type Writer struct {
	*cancelable
	turn turn // of the call that is under way; guards what follows
	w    *pack.Writer
	next uint64 // source number of the next Write
}

// NewWriter starts a data set at dst, or takes up an interrupted one.
func NewWriter(dst string, optionsJSON []byte) (*Writer, error) {
	var o packOptions
	if err := decode(optionsJSON, &o); err != nil {
		return nil, err
	}
	dir, err := localDir(dst)
	if err != nil {
		return nil, err
	}
	opts, err := o.options()
	if err != nil {
		return nil, err
	}
	c := newCancelable()
	w, err := pack.NewWriter(c.ctx, dir, opts)
	if err != nil {
		c.stop()
		return nil, err
	}
	return &Writer{cancelable: c, turn: newTurn(), w: w, next: w.Resumed()}, nil
}

// Write takes the next sample.
func (w *Writer) Write(vals []Value) error {
	if err := w.wait(w.turn); err != nil {
		return err
	}
	defer w.turn.Unlock()
	return w.write(w.next, "", vals)
}

// WriteFrom takes a sample with its number in the source, which must not descend, and its key; "" is the number.
func (w *Writer) WriteFrom(source uint64, key string, vals []Value) error {
	if err := w.wait(w.turn); err != nil {
		return err
	}
	defer w.turn.Unlock()
	if key == strconv.FormatUint(source, 10) {
		key = "" // the default takes no room
	}
	return w.write(source, key, vals)
}

func (w *Writer) write(source uint64, key string, vals []Value) error {
	if err := w.w.Write(source, key, vals); err != nil {
		return err
	}
	w.next = source + 1
	return nil
}

// Resumed is how many source samples an interrupted run has safely taken.
func (w *Writer) Resumed() uint64 { return w.w.Resumed() }

// Commit publishes the data set. Cancel ends it soon; what can be resumed is kept.
func (w *Writer) Commit() error {
	return w.end(func() error {
		_, err := w.w.Commit()
		return err
	})
}

// Abort ends the writer without a data set, and a Commit or Write that is under way.
func (w *Writer) Abort() error {
	w.Cancel()
	return w.end(w.w.Abort)
}

// end does the last thing with the writer, when it is its turn.
func (w *Writer) end(last func() error) error {
	if err := w.wait(w.turn); err != nil {
		return err
	}
	defer w.stop() // of no use any more
	return w.run(last, w.turn.Unlock)
}

// packFiles is the job "pack_files".
func packFiles(optionsJSON []byte, p *progress) (func(context.Context) (any, error), error) {
	var o struct {
		packOptions
		Src     string `json:"src"`
		Dst     string `json:"dst"`
		Format  string `json:"format"`
		OnError string `json:"on_error"`
	}
	if err := decode(optionsJSON, &o); err != nil {
		return nil, err
	}
	opts, err := o.options()
	if err != nil {
		return nil, err
	}
	if o.Fields == nil {
		opts.Schema = chunk.Schema{}
	}
	dst, err := localDir(o.Dst)
	if err != nil {
		return nil, err
	}
	if o.Format, err = oneOf("format", o.Format, "imagefolder", "files"); err != nil {
		return nil, err
	}
	if o.OnError, err = oneOf("on_error", o.OnError, "raise", "skip"); err != nil {
		return nil, err
	}
	p.unit = "files"
	tree := pack.TreeOptions{Options: opts, Root: o.Src, Format: o.Format, OnError: o.OnError}
	tree.Progress = func(done, total uint64) { p.set(int64(done), int64(total)) }
	return func(ctx context.Context) (any, error) {
		r, err := pack.Tree(ctx, dst, tree)
		if err != nil {
			return nil, err
		}
		return packed(&r), nil
	}, nil
}

// maxListed bounds the skipped sources that a result lists; all are counted.
const maxListed = 1000

func packed(r *pack.Result) any {
	type skipped struct {
		Source uint64 `json:"source"`
		Key    string `json:"key"`
		Error  string `json:"error"`
	}
	list := make([]skipped, 0, min(len(r.Skipped), maxListed))
	for _, s := range r.Skipped[:min(len(r.Skipped), maxListed)] {
		list = append(list, skipped{s.Source, s.Key, s.Error})
	}
	return map[string]any{
		"unchanged": r.Existing, "resumed": r.Resumed, "skipped": max(r.Manifest.Skipped, uint64(len(r.Skipped))), "skipped_sources": list,
	}
}
