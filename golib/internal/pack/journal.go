package pack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
)

// journal is the file in which a packing run notes what is safely done. It only grows; each line is a checksum and a
// JSON object, synced before anything relies on it. A line cut off by a crash is as if it were never written.
type journal struct {
	f     *os.File
	path  string
	quiet bool // nothing more is noted: the run is so short that it is simply done again
}

// line is one note; one of the fields is set.
type line struct {
	Begin   *begin   `json:"begin,omitempty"`
	Spilled *spilled `json:"spilled,omitempty"`
	Decided *decided `json:"decided,omitempty"`
	Shard   *done    `json:"shard,omitempty"`
}

// begin says what is being packed; always the first line.
type begin struct {
	Version  int    `json:"version"`
	Identity string `json:"identity"` // "" can't be resumed
}

// spilled: the samples so far are safely in the spill's buckets.
type spilled struct {
	Samples uint64   `json:"samples"`
	Next    uint64   `json:"next"` // source number to go on with
	Raw     uint64   `json:"raw"`  // bytes of the samples
	Buckets []bucket `json:"buckets"`
	Sealed  bool     `json:"sealed"` // no more will be spilled
}

// bucket is how much of a spill file is good.
type bucket struct {
	Bytes   int64  `json:"b"`
	Samples uint64 `json:"n"`
}

// decided is what "auto" came to; chunks are cut and encoded by it from here on.
type decided struct {
	ChunkSize int64  `json:"chunk_size"`
	Codec     string `json:"codec"`
	Reason    string `json:"reason"`
}

// done: a shard is whole and synced.
type done struct {
	Shard   chunk.Shard `json:"shard"`
	Next    uint64      `json:"next"`    // where the input goes on: a source number (Writer) or a place in the order (Tree)
	Samples uint64      `json:"samples"` // in all shards so far
	Labels  labelCounts `json:"labels"`  // of this shard
	Skipped []Skipped   `json:"skipped,omitempty"`
	Last    bool        `json:"last,omitempty"` // all input is in the shards
}

const journalVersion = 1

// readJournal returns the good lines and the bytes that they take; no file is no lines.
func readJournal(path string) (lines []line, good int64, err error) {
	b, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, failed(err, "read", path)
	}
	for {
		text, rest, whole := bytes.Cut(b, []byte("\n"))
		if !whole || len(text) < 9 {
			return lines, good, nil
		}
		var sum uint32
		var l line
		if _, err := fmt.Sscanf(string(text[:8]), "%08x", &sum); err != nil || chunk.Sum(text[9:]) != sum {
			return lines, good, nil
		}
		if err := json.Unmarshal(text[9:], &l); err != nil {
			return nil, 0, fault.Wrap(fault.Format, err, "journal %s", path).In(path)
		}
		lines = append(lines, l)
		good += int64(len(text)) + 1
		b = rest
	}
}

// openJournal goes on behind the good bytes.
func openJournal(path string, good int64) (*journal, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, failed(err, "open", path)
	}
	if err = f.Truncate(good); err == nil {
		_, err = f.Seek(good, 0)
	}
	if err != nil {
		_ = f.Close()
		return nil, failed(err, "open", path)
	}
	return &journal{f: f, path: path}, nil
}

// note makes a line durable.
func (j *journal) note(l line) error {
	if j.quiet {
		return nil
	}
	text, err := json.Marshal(l)
	if err != nil {
		return fault.Wrap(fault.Internal, err, "journal")
	}
	if _, err = fmt.Fprintf(j.f, "%08x %s\n", chunk.Sum(text), text); err == nil {
		err = j.f.Sync()
	}
	if err != nil {
		return failed(err, "write", j.path)
	}
	return nil
}

func (j *journal) close() { _ = j.f.Close() }

// progress is what the lines of a journal add up to.
type progress struct {
	identity string
	spilled  *spilled
	decided  *decided
	shards   []done
}

func replay(lines []line) (p progress, ours bool) {
	for i, l := range lines {
		switch {
		case i == 0 && (l.Begin == nil || l.Begin.Version != journalVersion):
			return p, false
		case l.Begin != nil:
			p.identity = l.Begin.Identity
		case l.Spilled != nil:
			p.spilled = l.Spilled
		case l.Decided != nil:
			p.decided = l.Decided
		case l.Shard != nil:
			p.shards = append(p.shards, *l.Shard)
		}
	}
	return p, len(lines) > 0
}
