package pack

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/redox-loader/redox/golib/internal/chunk"
)

// shardWriter appends encoded chunks to shard files. One goroutine owns it. A shard's header is written when the
// shard is whole, so that one cut off by a crash can't be taken for a shorter one.
type shardWriter struct {
	dir   string
	head  chunk.Head
	json  []byte // of head
	size  int64  // stored bytes at which a shard is closed
	after func(shard chunk.Shard, last bool) error

	f        *os.File
	name     string
	sum      uint32 // CRC-32C of what follows the header
	offset   int64
	header   chunk.ShardHeader // of the open shard
	shards   []chunk.Shard
	entries  []chunk.Entry
	contents [][32]byte
	chunks   uint64 // written in all
	samples  uint64
}

var zeros [chunk.Align]byte

// begin sets what all shard headers say; before the first append.
func (w *shardWriter) begin(head chunk.Head) (err error) {
	w.head, w.size = head, head.ShardSize
	w.json, err = chunk.EncodeHead(head)
	return err
}

// full says whether the next chunk of n bytes belongs into a new shard.
func (w *shardWriter) full(n int64) bool {
	return w.f != nil && w.header.Chunks > 0 && w.offset+n > w.size
}

// append writes one chunk behind the last one.
func (w *shardWriter) append(e *chunk.Encoded) error {
	n := int64(len(e.Head) + len(e.Payload))
	if w.full(n) {
		if err := w.finish(false); err != nil {
			return err
		}
	}
	if w.f == nil {
		if err := w.open(); err != nil {
			return err
		}
	}
	entry := e.Place(w.chunks, w.samples)
	entry.Shard, entry.Offset = uint32(len(w.shards)), uint64(w.offset)
	start := w.offset
	for _, b := range [][]byte{e.Head, e.Payload} {
		if _, err := w.f.WriteAt(b, w.offset); err != nil {
			return failed(err, "write", w.name)
		}
		w.offset += int64(len(b))
		w.sum = chunk.SumMore(w.sum, b)
	}
	// The padding is a hole, made by what is written behind it or by finish.
	gap := int64(entry.Padded()) - w.offset
	w.sum = chunk.SumMore(w.sum, zeros[:gap])
	w.offset += gap
	// Start writing back already, so that the sync at the shard's end has little left to wait for.
	_ = unix.SyncFileRange(int(w.f.Fd()), start, n, unix.SYNC_FILE_RANGE_WRITE)
	w.entries = append(w.entries, entry)
	w.contents = append(w.contents, e.Content)
	w.header.Chunks++
	w.header.Samples += uint64(entry.Samples)
	w.chunks++
	w.samples += uint64(entry.Samples)
	return nil
}

func (w *shardWriter) open() error {
	name := chunk.ShardName(len(w.shards))
	w.name = filepath.Join(w.dir, name)
	f, err := os.OpenFile(w.name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return failed(err, "create", w.name)
	}
	w.f, w.sum = f, 0
	w.offset = int64(chunk.ShardHeaderSize(len(w.json)))
	w.header = chunk.ShardHeader{Number: uint32(len(w.shards)), FirstChunk: w.chunks, First: w.samples, Head: w.head}
	return nil
}

// finish writes the header of the open shard, makes the file durable and hands it to after.
func (w *shardWriter) finish(last bool) error {
	if w.f == nil { // resumed, and all that was left is unreadable by now: the last shard stays as it was
		return nil
	}
	w.header.Last, w.header.Bytes = last, uint64(w.offset)
	b := w.header.Encode(w.json)
	if _, err := w.f.WriteAt(b, 0); err != nil {
		return failed(err, "write", w.name)
	}
	if err := w.f.Truncate(w.offset); err != nil {
		return failed(err, "write", w.name)
	}
	if err := w.f.Sync(); err != nil {
		return failed(err, "sync", w.name)
	}
	err := w.f.Close()
	w.f = nil
	if err != nil {
		return failed(err, "close", w.name)
	}
	shard := chunk.Shard{
		Name: chunk.ShardName(len(w.shards)), Bytes: w.header.Bytes, Chunks: w.header.Chunks, Samples: w.header.Samples,
		Sum: chunk.Hex32(chunk.SumJoin(chunk.Sum(b), w.sum, uint64(w.offset)-uint64(len(b)))),
	}
	w.shards = append(w.shards, shard)
	return w.after(shard, last)
}

// abandon closes the open file and leaves it to the next run to overwrite or remove.
func (w *shardWriter) abandon() {
	if w.f != nil {
		_ = w.f.Close()
		w.f = nil
	}
}
