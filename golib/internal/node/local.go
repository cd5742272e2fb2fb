package node

import (
	"errors"
	"fmt"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/store"
)

// extents shows a chunk index as the table of places that package store wants.
type extents struct{ index *chunk.Index }

func (x extents) Chunks() int { return len(x.index.Entries) }

func (x extents) Extent(c uint32) store.Extent {
	e := &x.index.Entries[c]
	return store.Extent{File: e.Shard, Offset: int64(e.Offset), Length: int64(e.Stored)}
}

// LocalSource is the source of a data set packed into a local directory.
func LocalSource(dir string, m *chunk.Manifest, index *chunk.Index, io store.IO) store.Source {
	names := make([]string, len(m.Shards))
	total := int64(0)
	for i, s := range m.Shards {
		names[i] = s.Name
		total += int64(s.Bytes)
	}
	return store.NewFlat(store.NewLocal(dir, names, io, total), extents{index})
}

// locate adds chunk and shard to an error that does not say them.
func locate(err error, e chunk.Entry) error {
	var f *fault.Error
	if !errors.As(err, &f) || f.Chunk >= 0 || f.Kind == fault.Canceled {
		return err
	}
	g := *f
	g.Message = fmt.Sprintf("shard %d, chunk %d: %s", e.Shard, e.Chunk, f.Message)
	return g.At(int64(e.Shard), int64(e.Chunk), -1)
}
