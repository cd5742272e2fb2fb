package redox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/node"
	"github.com/redox-loader/redox/golib/internal/plan"
	"github.com/redox-loader/redox/golib/internal/store"
)

// Dataset is an opened data set: manifest and chunk index, no samples. Safe for concurrent use.
type Dataset struct {
	path    string
	data    *chunk.Dataset
	samples []uint32 // of each chunk

	mu     sync.Mutex
	single *node.Reader // for single samples, opened when first needed
	closed bool
}

// dirFiles are the small files of a data set in a local directory.
type dirFiles string

func (d dirFiles) ReadFile(name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(string(d), filepath.FromSlash(name)))
}

// Open opens the data set at path. There are no options yet.
func Open(path string, optionsJSON []byte) (*Dataset, error) {
	var none struct{}
	if err := decode(optionsJSON, &none); err != nil {
		return nil, err
	}
	dir, err := localDir(path)
	if err != nil {
		return nil, err
	}
	data, err := chunk.Open(dirFiles(dir))
	if err != nil {
		return nil, named(path, notDirectory(err))
	}
	d := &Dataset{path: dir, data: data, samples: make([]uint32, len(data.Index.Entries))}
	for i := range data.Index.Entries {
		d.samples[i] = data.Index.Entries[i].Samples
	}
	return d, nil
}

// localDir refuses what is not a local path, with a word on what to do.
func localDir(path string) (string, error) {
	scheme, rest, found := strings.Cut(path, "://")
	switch {
	case path == "":
		return "", fault.New(fault.Invalid, "path is empty")
	case strings.ContainsRune(path, 0):
		return "", fault.New(fault.Invalid, "path %q has a NUL in it", path)
	case !found:
		return filepath.Clean(path), nil
	case scheme == "file":
		return filepath.Clean(rest), nil
	}
	return "", fault.New(fault.Invalid, "path=%q: %s:// is not supported yet; copy the data set to a local or mounted file system", path, scheme)
}

// notDirectory makes opening something that is no directory the same as opening an empty one.
func notDirectory(err error) error {
	if errors.Is(err, syscall.ENOTDIR) {
		return fault.New(fault.NotDataset, "not a data set: a file, not a directory")
	}
	return err
}

// named puts the path in front of a failure to open and into the error.
func named(path string, err error) error {
	var f *fault.Error
	if !errors.As(err, &f) {
		return fault.Wrap(fault.IO, err, "%s", path).In(path)
	}
	if f.Kind == fault.NotDataset {
		f.Errno = syscall.ENOENT
		if _, statErr := os.Stat(path); errors.Is(statErr, fs.ErrNotExist) {
			f.Message = "no such file or directory"
		} else if shards := orphanedShards(path); len(shards) > 0 {
			f.Message += fmt.Sprintf("; it has %d shards: if it was whole once, redox verify --repair rebuilds what is lost", len(shards))
		}
	}
	f.Message = path + ": " + f.Message
	return f.In(path)
}

// orphanedShards are the shards in a directory, unless it is one that is still to be packed to its end.
func orphanedShards(path string) []string {
	if _, err := os.Stat(filepath.Join(path, filepath.FromSlash(chunk.JournalName))); err == nil {
		return nil
	}
	shards, _ := filepath.Glob(filepath.Join(path, chunk.ShardDir, "*.rdx")) // the pattern is good
	return shards
}

// Close frees the data set's files. Loaders made from it go on.
func (d *Dataset) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.single != nil {
		d.single.Close()
		d.single = nil
	}
	return nil
}

// newReader opens the data set's chunks for reading.
func (d *Dataset) newReader(io store.IO) *node.Reader {
	source := node.LocalSource(d.path, &d.data.Manifest, &d.data.Index, io)
	return node.NewReader(source, d.data.Manifest.Schema, &d.data.Index, 0)
}

// singles returns the reader of single samples, with a reference for the caller to close.
func (d *Dataset) singles() (*node.Reader, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fault.New(fault.BadHandle, "the data set is closed")
	}
	if d.single == nil {
		d.single = d.newReader(store.Buffered)
	}
	return d.single.Retain(), nil
}

// Subset is a chosen set of stored numbers.
type Subset struct {
	dataset *Dataset
	subset  plan.Subset
	size    int
}

// NewSubset checks and copies stored numbers, which must be ascending, unique and there.
func (d *Dataset) NewSubset(numbers []int64) (*Subset, error) {
	if len(numbers) == 0 {
		return nil, fault.New(fault.Invalid, "subset: no samples")
	}
	s, err := plan.ListSubset(d.samples, numbers)
	if err != nil {
		return nil, err
	}
	return &Subset{d, s, len(numbers)}, nil
}
