package pack

import (
	"cmp"
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/perm"
)

// TreeOptions say which files to pack, beside how. An empty Schema is that of the format, an empty SourceHash that of
// the files' names, sizes and times.
type TreeOptions struct {
	Options
	Root     string
	Format   string                   // imagefolder (image, label) or files (path, data)
	Files    []TreeFile               // nil: all of the tree
	OnError  string                   // raise (default) or skip: of files that can't be read
	Progress func(done, total uint64) // files; called now and then from one goroutine; may be nil
}

// Result is what Tree made.
type Result struct {
	Manifest chunk.Manifest
	Existing bool      // it was there already, complete
	Resumed  uint64    // files that an interrupted run had packed already
	Skipped  []Skipped // files that could not be read (OnError skip); not known of an existing data set
}

// treeReaders is how many files are read at once where the memory allows it: reading waits for storage, so there may
// be more than processors.
const treeReaders = 8

// tree is one run of Tree.
type tree struct {
	o     TreeOptions
	r     *run
	files []TreeFile
	order []uint32 // files as they are stored
	root  int      // descriptor of the root directory
	front uint64   // raw bytes of a sample beside its path and the file's content
}

// Tree packs a tree of files: in permuted order with Shuffle, without spilling, as the files can be read in any order.
// Each worker reads the files of one chunk straight into it.
func Tree(ctx context.Context, dst string, o TreeOptions) (Result, error) {
	t := &tree{o: o, files: o.Files}
	if err := t.scan(dst); err != nil {
		return Result{}, err
	}
	o = t.o
	if o.Workers == 0 {
		o.Workers = max(treeReaders, 2*defaultWorkers())
	}
	r, existing, err := newRun(ctx, dst, o.Options)
	if err != nil {
		return Result{}, err
	}
	if existing != nil {
		return Result{Manifest: *existing, Existing: true}, nil
	}
	t.r = r
	if t.root, err = unix.Open(o.Root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return Result{}, r.stop(failed(err, "open", o.Root))
	}
	err = t.pack()
	if err != nil {
		err = r.stop(err)
	} else {
		res := Result{Resumed: r.resumed.Next}
		res.Manifest, err = r.finish(uint64(len(t.files)))
		res.Skipped = r.skipped
		_ = unix.Close(t.root)
		return res, err
	}
	_ = unix.Close(t.root)
	return Result{}, err
}

// scan finds the files and what follows from them: schema, classes, identity.
func (t *tree) scan(dst string) (err error) {
	o := &t.o
	switch {
	case o.Format != "imagefolder" && o.Format != "files":
		return fault.New(fault.Invalid, "format %q: must be imagefolder or files", o.Format)
	case o.OnError != "" && o.OnError != "raise" && o.OnError != "skip":
		return fault.New(fault.Invalid, "on_error %q: must be raise or skip", o.OnError)
	}
	if t.files == nil {
		var classes []string
		if t.files, classes, err = scanTree(o.Root, dst, o.Format); err != nil {
			return err
		}
		o.Classes = classes
	} else {
		t.files = slices.Clone(t.files)
		for i := range t.files {
			info, err := os.Stat(filepath.Join(o.Root, t.files[i].Path))
			if err == nil { // else reading will say so
				t.files[i].size, t.files[i].mtime = info.Size(), info.ModTime().UnixNano()
			}
			t.files[i].check(info)
		}
	}
	if o.OnError != "skip" { // known before anything is read
		for i := range t.files {
			if t.files[i].wrong != nil {
				return failed(t.files[i].wrong, "read", t.path(i))
			}
		}
	}
	if uint64(len(t.files)) > 1<<32-1 {
		return fault.New(fault.Invalid, "%s: %d files are too many", o.Root, len(t.files)).In(o.Root)
	}
	if len(t.files) == 0 {
		return fault.New(fault.Invalid, "%s: no files in it", o.Root).In(o.Root)
	}
	schema := t.schema()
	if o.Schema.Fields == nil {
		o.Schema = schema
	}
	if len(o.Schema.Fields) != 2 || o.Schema.Fields[0].Name != schema.Fields[0].Name || o.Schema.Fields[1].Name != schema.Fields[1].Name {
		return fault.New(fault.Invalid, "format %s has the fields %s and %s", o.Format, schema.Fields[0].Name, schema.Fields[1].Name)
	}
	o.SourceHash = treeHash(o.SourceHash, o.Format, t.files)
	return nil
}

// schema is that of the format; an image's kind is its extension's if all have the same.
func (t *tree) schema() chunk.Schema {
	if t.o.Format == "files" {
		return chunk.Schema{Layout: "dict", Fields: []chunk.Field{{Name: "path", Kind: chunk.KindStr}, {Name: "data", Kind: chunk.KindBytes}}}
	}
	kind := ""
	for _, f := range t.files {
		k := chunk.KindImage
		switch strings.ToLower(filepath.Ext(f.Path)) {
		case ".jpg", ".jpeg":
			k = chunk.KindJPEG
		case ".png":
			k = chunk.KindPNG
		}
		if kind != "" && k != kind {
			k = chunk.KindImage
		}
		if kind = k; kind == chunk.KindImage {
			break
		}
	}
	return chunk.Schema{Layout: "tuple", Fields: []chunk.Field{{Name: "image", Kind: kind}, {Name: "label", Kind: chunk.KindInt}}}
}

// pack submits the chunks in order.
func (t *tree) pack() error {
	raw := t.arrange()
	size := t.r.o.ChunkSize
	if t.r.begun {
		size = t.r.decided.ChunkSize
	} else if size == 0 {
		size = chunkSize(raw)
	}
	total := uint64(len(t.order))
	if t.o.Progress != nil {
		t.r.asm.onChunk = func(next uint64) { t.o.Progress(next, total) }
	}
	for at := t.r.resumed.Next; at < total && !t.r.last; {
		b, err := t.r.asm.builder()
		if err != nil {
			return err
		}
		from, to := at, t.cut(at, size)
		at = to
		j := &job{builder: b, next: to, fill: func(b *chunk.Builder) ([]Skipped, error) { return t.read(b, t.order[from:to]) }}
		if !t.r.begun { // the first chunk decides the codec
			if j.skipped, err = j.fill(b); err != nil {
				return err
			}
			j.fill = nil
			if b.Len() > 0 {
				codec, reason, err := t.r.choose(b)
				if err != nil {
					return err
				}
				if err := t.r.begin(size, codec, reason); err != nil {
					return err
				}
			}
		}
		t.r.asm.submit(j)
	}
	return nil
}

// arrange puts the files into stored order, that of Writer, and returns their raw bytes.
func (t *tree) arrange() (raw uint64) {
	t.order = make([]uint32, len(t.files))
	for i := range t.order {
		t.order[i] = uint32(i)
		raw += t.raw(uint32(i))
	}
	if t.o.Shuffle {
		seed := perm.Seed("pack", t.o.Seed)
		slices.SortFunc(t.order, func(a, b uint32) int {
			return cmp.Compare(perm.Derive(seed, uint64(a)), perm.Derive(seed, uint64(b)))
		})
	}
	return raw
}

// raw is the bytes of a file's sample by what the scan saw.
func (t *tree) raw(i uint32) uint64 {
	f := &t.files[i]
	if t.o.Format == "files" {
		return 8 + uint64(len(f.Path)) + uint64(f.size)
	}
	return 8 + uint64(f.size)
}

// cut is where the chunk that starts at a place of the order ends. It goes by the scanned sizes, so that workers need
// not wait for one another; a file that changed since makes its chunk a little larger or smaller.
func (t *tree) cut(from uint64, size int64) uint64 {
	var total uint64
	keys, to := 0, from
	for ; to < uint64(len(t.order)); to++ {
		i := t.order[to]
		if !chunk.Takes(int(to-from), total, keys, t.raw(i), len(t.files[i].Path), size) {
			break
		}
		total += t.raw(i)
		keys += len(t.files[i].Path)
	}
	return to
}

// path is where a file lies, as text.
func (t *tree) path(i int) string {
	return filepath.Join(t.o.Root, filepath.FromSlash(t.files[i].key()))
}

// read fills a chunk with files.
func (t *tree) read(b *chunk.Builder, files []uint32) (skipped []Skipped, err error) {
	var label [8]byte
	vals := make([]chunk.Value, 2)
	content := &vals[0]
	if t.o.Format == "files" {
		content = &vals[1]
	}
	for _, i := range files {
		if t.r.asm.ctx.Err() != nil {
			return nil, t.r.asm.err()
		}
		f := &t.files[i]
		if t.o.Format == "files" {
			vals[0].Data = append(vals[0].Data[:0], f.Path...)
		} else {
			binary.LittleEndian.PutUint64(label[:], uint64(f.Label))
			vals[1].Data = label[:]
		}
		// The file's content is the last variable field, so it belongs right behind the others.
		content.Data = nil
		buf, err := t.r.layout.AppendSample(b.Buffer(), vals)
		if err != nil {
			return nil, err
		}
		if err = f.wrong; err == nil {
			before := len(buf)
			if buf, err = appendFile(buf, t.root, f.Path, f.size); err == nil {
				content.Data = buf[before:]
				err = t.r.layout.CheckText(vals)
			}
		}
		if err != nil {
			path := t.path(int(i))
			switch {
			case t.o.OnError == "skip":
			case fault.KindOf(err) == fault.Invalid:
				return nil, fault.Wrap(fault.Invalid, err, "%s", path).In(path)
			default:
				return nil, failed(err, "read", path)
			}
			skipped = append(skipped, Skipped{Source: uint64(i), Key: f.key(), Error: err.Error()})
			continue
		}
		b.Add(uint64(i), f.Path, buf)
	}
	return skipped, nil
}

// appendFile appends a file's content. It goes past package os, which asks the poller about every file: with files of
// a few KB the system calls are the cost, and so there are three.
func appendFile(dst []byte, dir int, path string, size int64) ([]byte, error) {
	fd, err := open(dir, path)
	if err != nil {
		return dst, err
	}
	defer unix.Close(fd)
	start := len(dst)
	dst = slices.Grow(dst, int(size)+1)
	for {
		n, err := unix.Read(fd, dst[len(dst):cap(dst)])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return dst, err
		}
		dst = dst[:len(dst)+n]
		// A read that was asked for more than the file should have left, and got just that, has seen the end.
		if n == 0 || int64(len(dst)-start) == size {
			return dst, nil
		}
		dst = slices.Grow(dst, 4096)
	}
}

func open(dir int, path string) (int, error) {
	for {
		fd, err := unix.Openat(dir, path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}
