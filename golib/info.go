package redox

import (
	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/plan"
)

// info is what redox_info tells; its JSON is fixed in docs/capi.md.
type info struct {
	Path        string            `json:"path"`
	Format      string            `json:"format_version"`
	Fingerprint string            `json:"fingerprint"`
	Samples     uint64            `json:"samples"`
	Chunks      uint32            `json:"chunks"`
	Shards      int               `json:"shards"`
	Bytes       uint64            `json:"bytes"`
	StoredBytes uint64            `json:"stored_bytes"` // what an epoch reads: whole pages
	Codec       string            `json:"codec"`
	CodecReason string            `json:"codec_reason,omitempty"`
	ChunkSize   int64             `json:"chunk_size"`
	Layout      string            `json:"layout"`
	Fields      []fieldInfo       `json:"fields"`
	Classes     []string          `json:"classes"`
	ClassCounts map[string]uint64 `json:"class_counts,omitempty"`
	Shuffled    bool              `json:"shuffled"`
	Seed        uint64            `json:"seed"`
	Rho         *float64          `json:"rho"`
	Skipped     uint64            `json:"skipped"`
	Window      int               `json:"window"`     // the default
	Partitions  int               `json:"partitions"` // the default
	MaxSample   uint64            `json:"max_sample"` // raw bytes of the largest
	MaxChunk    uint64            `json:"max_chunk"`  // stored bytes of the largest
	SourceHash  string            `json:"source_hash,omitempty"`
	Meta        map[string]any    `json:"meta,omitempty"`
}

// fieldInfo is a field as a reader of batches needs it.
type fieldInfo struct {
	Name     string  `json:"name"`
	Kind     string  `json:"kind"`  // array for all arrays
	DType    string  `json:"dtype"` // of arrays and numbers; "" for byte strings
	Shape    []int64 `json:"shape"` // of one item; null where it varies
	Nullable bool    `json:"nullable"`
	Fixed    bool    `json:"fixed"`     // one contiguous buffer, no offsets
	ItemSize int     `json:"item_size"` // bytes of an element
	Size     int     `json:"size"`      // bytes of a sample's value if fixed, else 0
	Written  string  `json:"written"`   // as Writer takes it
}

func describe(f chunk.Field) fieldInfo {
	size, fixed := f.FixedSize()
	out := fieldInfo{
		Name: f.Name, Kind: f.Kind, DType: f.DType, Shape: f.Shape, Nullable: f.Nullable, Fixed: fixed,
		ItemSize: f.ItemSize(), Written: f.String(),
	}
	switch f.Kind {
	case chunk.KindInt:
		out.DType, out.Shape = "int64", []int64{}
	case chunk.KindFloat:
		out.DType, out.Shape = "float64", []int64{}
	case chunk.KindBool:
		out.DType, out.Shape = "bool", []int64{}
	}
	if fixed {
		out.Size = size
	}
	return out
}

// InfoJSON tells what is in the data set.
func (d *Dataset) InfoJSON() ([]byte, error) {
	m := &d.data.Manifest
	out := info{
		Path: d.path, Format: m.Format, Fingerprint: m.Fingerprint, Samples: m.Samples, Chunks: m.Chunks, Shards: len(m.Shards),
		Bytes: m.Bytes, Codec: m.Codec, CodecReason: m.CodecReason, ChunkSize: m.ChunkSize,
		Layout: m.Schema.Layout, Classes: m.Classes, ClassCounts: m.ClassCounts, Shuffled: m.Shuffled, Seed: m.Seed, Rho: m.Rho,
		Skipped: m.Skipped, SourceHash: m.Source, Meta: m.Meta,
	}
	for _, f := range m.Schema.Fields {
		out.Fields = append(out.Fields, describe(f))
	}
	for i := range d.data.Index.Entries {
		e := &d.data.Index.Entries[i]
		out.MaxSample = max(out.MaxSample, e.MaxRaw)
		out.MaxChunk = max(out.MaxChunk, e.Stored)
		out.StoredBytes += e.Padded() - e.Offset
	}
	p, err := plan.New(plan.Spec{Samples: d.samples, Shuffle: true})
	if err != nil {
		return nil, err
	}
	out.Window, out.Partitions = p.Window(), p.Partitions()
	return encode(out)
}
