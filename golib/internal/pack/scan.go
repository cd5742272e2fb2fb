package pack

import (
	"os"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
)

// scanned is what the headers of one shard file tell.
type scanned struct {
	header   chunk.ShardHeader
	entries  []chunk.Entry
	contents [][32]byte
}

// scanShard goes from chunk header to chunk header; numbers count inside the part.
func scanShard(f *os.File, shard uint32) (s scanned, err error) {
	info, err := f.Stat()
	if err != nil {
		return s, failed(err, "stat", f.Name())
	}
	var at int64
	if s.header, at, err = chunk.ReadShardHeader(f, info.Size()); err != nil {
		return s, err
	}
	if uint64(info.Size()) != s.header.Bytes {
		return s, fault.New(fault.Corrupt, "shard has %d bytes, its header says %d", info.Size(), s.header.Bytes).At(int64(shard), -1, -1)
	}
	number, first := s.header.FirstChunk, s.header.First
	for range s.header.Chunks {
		e, content, err := chunk.ReadChunkHeader(f, at)
		if err != nil {
			return s, err
		}
		if e.Padded() > s.header.Bytes || uint64(e.Chunk) != number || e.First != first {
			return s, fault.New(fault.Corrupt, "chunk at %d is not number %d", at, number).At(int64(shard), int64(number), -1)
		}
		e.Shard = shard
		s.entries = append(s.entries, e)
		s.contents = append(s.contents, content)
		at, number, first = int64(e.Padded()), number+1, first+uint64(e.Samples)
	}
	if uint64(at) != s.header.Bytes || first-s.header.First != s.header.Samples {
		return s, fault.New(fault.Corrupt, "chunks don't add up to the shard").At(int64(shard), -1, -1)
	}
	return s, nil
}
