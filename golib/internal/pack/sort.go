package pack

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"os"
	"slices"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
)

// each hands out the samples from number `from` on in their final order, after flush. Whole buckets before that are
// not read.
func (s *spill) each(from uint64, yield func(spillSample) error) error {
	for i := range s.buckets {
		b := &s.buckets[i]
		if from >= b.Samples {
			from -= b.Samples
			continue
		}
		var err error
		switch {
		case !s.shuffle:
			err = s.stream(i, from, yield)
		case b.cost() > s.memory && b.Samples > 1 && s.from+s.bits+bucketBits < 64:
			err = s.split(i, from, yield)
		default:
			err = s.sorted(i, from, yield)
		}
		if err != nil {
			return err
		}
		from = 0
	}
	return nil
}

// place is a sample in a loaded bucket.
type place struct {
	key uint64
	at  int
}

// sortCost is the memory that sorting takes for each sample beside its bytes.
const sortCost = 16

// cost is the memory that sorting a bucket takes.
func (b *bucket) cost() int64 { return b.Bytes + int64(b.Samples)*sortCost }

// sorted loads a bucket and hands it out by sort key.
func (s *spill) sorted(i int, from uint64, yield func(spillSample) error) error {
	data, err := s.load(i)
	if err != nil {
		return err
	}
	places := make([]place, 0, s.buckets[i].Samples)
	for at := 0; at < len(data); {
		n, err := spillSize(data[at:])
		if err != nil {
			return s.damaged(i, err)
		}
		places = append(places, place{s.sortKey(binary.LittleEndian.Uint64(data[at+8:])), at})
		at += n
	}
	if uint64(len(places)) != s.buckets[i].Samples {
		return s.damaged(i, fault.New(fault.Corrupt, "has %d samples, not %d", len(places), s.buckets[i].Samples))
	}
	// Stable by place, so that even a source number that was given twice keeps one order.
	slices.SortFunc(places, func(a, b place) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.at, b.at)) })
	for _, p := range places[from:] {
		sample, err := parseSpilled(data[p.at:])
		if err != nil {
			return s.damaged(i, err)
		}
		if err := yield(sample); err != nil {
			return err
		}
	}
	return nil
}

// load reads a bucket into memory that the next one takes over.
func (s *spill) load(i int) ([]byte, error) {
	f, err := os.Open(s.path(i))
	if err != nil {
		return nil, failed(err, "open", s.path(i))
	}
	defer f.Close()
	s.loaded = slices.Grow(s.loaded[:0], int(s.buckets[i].Bytes))[:s.buckets[i].Bytes]
	if _, err := io.ReadFull(f, s.loaded); err != nil {
		return nil, s.damaged(i, err)
	}
	return s.loaded, nil
}

// split deals a bucket that is too large for the memory to buckets of its own. It stays until the caller drops it, so
// that an interruption finds it whole.
func (s *spill) split(i int, from uint64, yield func(spillSample) error) error {
	sub := &spill{dir: s.path(i) + ".d", seed: s.seed, shuffle: true, from: s.from + s.bits, memory: s.memory}
	// As few buckets as fit the memory with some to spare for chance: files cost time.
	sub.bits = min(bits.Len64(uint64(2*s.buckets[i].cost()/s.memory)), bucketBits)
	sub.buckets = make([]spillFile, 1<<sub.bits)
	if err := os.RemoveAll(sub.dir); err != nil {
		return failed(err, "remove", sub.dir)
	}
	if err := os.MkdirAll(sub.dir, 0o777); err != nil {
		return failed(err, "create", sub.dir)
	}
	err := s.stream(i, 0, func(p spillSample) error { return sub.add(p.source, p.key, p.raw) })
	if err == nil {
		err = sub.flush(false)
	}
	sub.close()
	if err == nil {
		for b := range sub.buckets {
			sub.buckets[b].tail = nil
		}
		err = sub.each(from, yield)
	}
	if removed := os.RemoveAll(sub.dir); err == nil && removed != nil {
		err = failed(removed, "remove", sub.dir)
	}
	return err
}

// stream hands out a bucket as it was written.
func (s *spill) stream(i int, from uint64, yield func(spillSample) error) error {
	f, err := os.Open(s.path(i))
	if err != nil {
		return failed(err, "open", s.path(i))
	}
	defer f.Close()
	r := bufio.NewReaderSize(io.LimitReader(f, s.buckets[i].Bytes), maxBuffer)
	var buf []byte
	for n := uint64(0); n < s.buckets[i].Samples; n++ {
		head, err := r.Peek(spillHeader)
		if err != nil {
			return s.damaged(i, err)
		}
		size := uint64(spillHeader) + uint64(binary.LittleEndian.Uint32(head[16:])) + binary.LittleEndian.Uint64(head)
		if size > uint64(s.buckets[i].Bytes) {
			return s.damaged(i, io.ErrUnexpectedEOF)
		}
		buf = slices.Grow(buf[:0], int(size))[:size]
		if _, err := io.ReadFull(r, buf); err != nil {
			return s.damaged(i, err)
		}
		if n < from {
			continue
		}
		sample, err := parseSpilled(buf)
		if err != nil {
			return s.damaged(i, err)
		}
		if err := yield(sample); err != nil {
			return err
		}
	}
	return nil
}

func (s *spill) damaged(i int, err error) error {
	return fault.Wrap(fault.Corrupt, err, "spill %s is damaged; pack again without resuming", s.path(i)).In(s.path(i))
}

// spillSize is the bytes that the spilled sample at the front takes.
func spillSize(b []byte) (int, error) {
	if len(b) < spillHeader {
		return 0, io.ErrUnexpectedEOF
	}
	raw, key := binary.LittleEndian.Uint64(b), uint64(binary.LittleEndian.Uint32(b[16:]))
	if raw > uint64(len(b)) || key > uint64(len(b)) || spillHeader+raw+key > uint64(len(b)) {
		return 0, io.ErrUnexpectedEOF
	}
	return int(spillHeader + raw + key), nil
}

// parseSpilled checks and returns the spilled sample at the front.
func parseSpilled(b []byte) (spillSample, error) {
	n, err := spillSize(b)
	if err != nil {
		return spillSample{}, err
	}
	le := binary.LittleEndian
	if chunk.Sum(b[spillHeader:n]) != le.Uint32(b[20:]) {
		return spillSample{}, fmt.Errorf("wrong checksum of source %d", le.Uint64(b[8:]))
	}
	mid := spillHeader + int(le.Uint32(b[16:]))
	return spillSample{source: le.Uint64(b[8:]), key: string(b[spillHeader:mid]), raw: b[mid:n]}, nil
}
