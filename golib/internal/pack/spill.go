package pack

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/perm"
)

const (
	bucketBits = 7
	// spillHeader: u64 raw bytes, u64 source, u32 key bytes, u32 CRC-32C of key and raw sample; then those.
	spillHeader = 24
	maxBuffer   = 512 << 10 // bytes gathered before a write to a bucket
)

// spill is a sort on disk: samples go to buckets by the leading bits of a seeded key of their source number, and come
// out bucket by bucket, sorted by the key. As the key is a seeded bijection of the source number, the order is a
// uniform shuffle that depends on seed and source numbers alone, not on memory or on where a run was interrupted.
// Without shuffling there is one bucket, and samples come out as they went in. One goroutine owns it.
type spill struct {
	dir     string
	seed    uint64
	shuffle bool
	from    int   // leading bits of the key that all samples here share
	bits    int   // the bits behind those choose the bucket
	memory  int64 // bytes that a bucket may take when sorted
	buckets []spillFile
	total   spilled // Buckets are filled in by checkpoint
	loaded  []byte  // the bucket being handed out
}

// spillFile is a bucket on disk, with its end still in memory.
type spillFile struct {
	bucket
	f    *os.File
	tail []byte
}

// spillSample is one sample as it comes out.
type spillSample struct {
	source uint64
	key    string
	raw    []byte // valid until the next one
}

func newSpill(dir string, seed uint64, shuffle bool, memory int64) *spill {
	s := &spill{dir: dir, seed: perm.Seed("pack", seed), shuffle: shuffle, bits: bucketBits, memory: memory / 2}
	s.buckets = make([]spillFile, 1)
	if shuffle {
		s.buckets = make([]spillFile, 1<<bucketBits)
	}
	return s
}

// sortKey is the place of a source in the shuffled order, among all 2^64.
func (s *spill) sortKey(source uint64) uint64 { return perm.Derive(s.seed, source) }

func (s *spill) path(b int) string { return filepath.Join(s.dir, fmt.Sprintf("%03d", b)) }

// restore goes on with what an earlier run's checkpoint says, and forgets what was written after it.
func (s *spill) restore(total spilled) error {
	if len(total.Buckets) != len(s.buckets) {
		return fault.New(fault.Format, "journal has %d buckets, not %d", len(total.Buckets), len(s.buckets))
	}
	s.total = total
	for i := range s.buckets {
		b := &s.buckets[i]
		b.bucket = total.Buckets[i]
		info, err := os.Stat(s.path(i))
		switch {
		case os.IsNotExist(err) && (b.Bytes == 0 || total.Sealed): // sealed: its samples may be in shards already
			continue
		case err != nil:
			return failed(err, "resume: open", s.path(i))
		case info.Size() < b.Bytes:
			return fault.New(fault.Corrupt, "resume: %s has lost data; remove it or pack with resume=False", s.path(i)).In(s.path(i))
		}
		if err := os.Truncate(s.path(i), b.Bytes); err != nil {
			return failed(err, "resume: truncate", s.path(i))
		}
	}
	return nil
}

// add takes a sample.
func (s *spill) add(source uint64, key string, raw []byte) error {
	i := 0
	if s.shuffle {
		i = int(s.sortKey(source) << s.from >> (64 - s.bits))
	}
	b := &s.buckets[i]
	le := binary.LittleEndian
	at := len(b.tail)
	b.tail = le.AppendUint64(b.tail, uint64(len(raw)))
	b.tail = le.AppendUint64(b.tail, source)
	b.tail = le.AppendUint32(b.tail, uint32(len(key)))
	b.tail = append(b.tail, 0, 0, 0, 0)
	b.tail = append(b.tail, key...)
	b.tail = append(b.tail, raw...)
	le.PutUint32(b.tail[at+20:], chunk.Sum(b.tail[at+spillHeader:]))
	b.Bytes += int64(len(b.tail) - at)
	b.Samples++
	s.total.Samples++
	s.total.Raw += uint64(len(raw))
	s.total.Next = source + 1
	if len(b.tail) >= int(min(maxBuffer, s.memory/2>>bucketBits)) {
		return s.write(i)
	}
	return nil
}

// write moves the tail of a bucket to its file.
func (s *spill) write(i int) error {
	b := &s.buckets[i]
	if len(b.tail) == 0 {
		return nil
	}
	if b.f == nil {
		flags := os.O_WRONLY | os.O_CREATE
		if b.Bytes == int64(len(b.tail)) {
			flags |= os.O_TRUNC // of an earlier run that made no checkpoint
		}
		f, err := os.OpenFile(s.path(i), flags, 0o666)
		if err != nil {
			return failed(err, "create", s.path(i))
		}
		b.f = f
	}
	if _, err := b.f.WriteAt(b.tail, b.Bytes-int64(len(b.tail))); err != nil {
		return failed(err, "write", s.path(i))
	}
	b.tail = b.tail[:0]
	if cap(b.tail) > 2*maxBuffer { // a huge sample went through
		b.tail = nil
	}
	return nil
}

// flush writes all tails, and makes the files durable if asked to.
func (s *spill) flush(durable bool) error {
	var wg sync.WaitGroup
	errs := make([]error, len(s.buckets))
	atOnce := make(chan struct{}, 8) // disks sync several files faster than one after the other
	for i := range s.buckets {
		if err := s.write(i); err != nil {
			return err
		}
		if f := s.buckets[i].f; f != nil && durable {
			atOnce <- struct{}{}
			wg.Add(1)
			go func() {
				defer wg.Done()
				if err := f.Sync(); err != nil {
					errs[i] = failed(err, "sync", f.Name())
				}
				<-atOnce
			}()
		}
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// checkpoint makes all samples so far durable and returns the note for the journal.
func (s *spill) checkpoint(sealed bool) (*spilled, error) {
	if err := s.flush(true); err != nil {
		return nil, err
	}
	if err := syncDir(s.dir); err != nil {
		return nil, err
	}
	s.total.Sealed = sealed
	note := s.total
	note.Buckets = make([]bucket, len(s.buckets))
	for i := range s.buckets {
		note.Buckets[i] = s.buckets[i].bucket
	}
	return &note, nil
}

// close closes the files and leaves them.
func (s *spill) close() {
	for i := range s.buckets {
		if f := s.buckets[i].f; f != nil {
			_ = f.Close()
			s.buckets[i].f = nil
		}
	}
}

// drop removes the buckets whose samples are all among the first n to come out.
func (s *spill) drop(n uint64) {
	end := uint64(0)
	for i := range s.buckets {
		if end += s.buckets[i].Samples; end > n {
			return
		}
		if s.buckets[i].Samples > 0 {
			_ = os.Remove(s.path(i)) // what stays is removed with the work directory
		}
	}
}
