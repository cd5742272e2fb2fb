package pack

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"runtime"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
)

// Options say what to make. The zero value of each is its default.
type Options struct {
	Schema     chunk.Schema
	Classes    []string
	Codec      string // lz4, none or auto
	ChunkSize  int64  // raw bytes; 0: 8 MiB, less for small data sets
	ShardSize  int64  // stored bytes; 0: 256 MiB
	Shuffle    bool
	Seed       uint64
	Overwrite  bool
	Resume     bool   // go on with an interrupted run of the same source and options
	SourceHash string // identity of the source and of what is done to it; "": can't be resumed or recognised
	Memory     int64  // bytes for sorting and chunks on their way; 0: 512 MiB. The result doesn't depend on it
	Workers    int    // goroutines that compress; 0: one for each processor. Nor on it
	Meta       map[string]any
}

const (
	minChunk      = 256 << 10
	minGiven      = 1 << 10
	wantedChunks  = 512 // fewer mix and split badly
	defaultShard  = 256 << 20
	defaultMemory = 512 << 20
	minMemory     = 256 << 10
)

// Variables for tests.
var (
	maxChunk int64 = 8 << 20 // storage is saturated by reads of 4 to 8 MiB
	// straightAfter is the raw bytes after which any number of samples gets chunks of maxChunk.
	straightAfter = wantedChunks * uint64(maxChunk)
)

// chunkSize is the automatic one for a data set of `raw` bytes.
func chunkSize(raw uint64) int64 {
	if raw >= straightAfter {
		return maxChunk
	}
	size := (int64(raw)/wantedChunks + chunk.Align - 1) / chunk.Align * chunk.Align
	return min(max(size, minChunk), maxChunk)
}

func defaultWorkers() int { return runtime.GOMAXPROCS(0) }

// workers is how many chunks may be worked on at once: each has a builder, which holds the chunk raw, packed and as
// compression scratch, and half of the memory is for them.
func (o *Options) workers() int {
	size := o.ChunkSize
	if size == 0 {
		size = maxChunk
	}
	return int(min(max(o.Memory/2/(3*size)-2, 1), int64(o.Workers)))
}

// check fills in defaults.
func (o *Options) check() error {
	if err := o.Schema.Validate(); err != nil {
		return err
	}
	if o.Codec == "" {
		o.Codec = "auto"
	}
	if o.ShardSize == 0 {
		o.ShardSize = defaultShard
	}
	if o.Memory == 0 {
		o.Memory = defaultMemory
	}
	if o.Workers == 0 {
		o.Workers = defaultWorkers()
	}
	switch {
	case o.Codec != "auto" && o.Codec != "lz4" && o.Codec != "none":
		return fault.New(fault.Invalid, "codec %q: must be auto, lz4 or none", o.Codec)
	case o.ChunkSize != 0 && o.ChunkSize < minGiven || o.ChunkSize > 1<<40:
		return fault.New(fault.Invalid, "chunk_size=%d: expected auto or %d to 2^40 bytes", o.ChunkSize, minGiven)
	case o.ShardSize < minGiven || o.ShardSize > 1<<44:
		return fault.New(fault.Invalid, "shard_size=%d: expected %d to 2^44 bytes", o.ShardSize, minGiven)
	case o.Memory < minMemory:
		return fault.New(fault.Invalid, "memory %d: must be at least %d bytes", o.Memory, minMemory)
	case o.Workers < 1 || o.Workers > 1024:
		return fault.New(fault.Invalid, "workers %d: must be 1 to 1024", o.Workers)
	}
	return nil
}

// identity digests all that the result depends on; "" if the source has none.
func (o *Options) identity() (string, error) {
	if o.SourceHash == "" {
		return "", nil
	}
	text, err := json.Marshal([]any{
		o.SourceHash, o.Schema, o.Classes, o.Codec, o.ChunkSize, o.ShardSize, o.Shuffle, o.Seed, o.Meta, chunk.Major,
	})
	if err != nil {
		return "", fault.Wrap(fault.Invalid, err, "meta does not fit JSON")
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}
