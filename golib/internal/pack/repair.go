package pack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
)

// findIndex loads the index, or rebuilds it by a scan of the shards' headers. The rebuilt one has the same bytes as the
// lost one, which the manifest's checksum of it proves; only then is it written.
func (v *verifier) findIndex(repair bool) error {
	var err error
	if v.index, err = chunk.LoadIndex(dirFiles(v.path), &v.m); err == nil {
		return nil
	}
	if kind := fault.KindOf(err); kind == fault.IO || kind == fault.Version {
		return err
	}
	v.found(chunk.IndexName, -1, err)
	c, err := v.scan()
	if err != nil {
		return fmt.Errorf("index is lost, and so is what would rebuild it: %w", err)
	}
	v.index = chunk.Index{Entries: c.entries}
	b := v.index.Append(nil)
	if uint64(len(b)) != v.m.Index.Bytes || chunk.Sum(b) != uint32(v.m.Index.Sum) {
		return fault.New(fault.Corrupt, "index is lost, and the shards are not those that it was made of")
	}
	if !repair {
		return nil
	}
	if err := replace(filepath.Join(v.path, chunk.IndexName), b); err != nil {
		return err
	}
	v.report.Repaired = append(v.report.Repaired, chunk.IndexName)
	return nil
}

// scan reads the headers of the manifest's shards.
func (v *verifier) scan() (c contents, err error) {
	var base part
	number := 0
	for _, p := range v.m.Parts {
		for range p.Shards {
			found, err := v.scanOne(v.m.Shards[number].Name, number)
			if err != nil {
				return c, err
			}
			for _, e := range found.entries {
				e.Chunk += uint32(base.chunk)
				e.First += base.sample
				c.entries = append(c.entries, e)
			}
			c.digests = append(c.digests, found.contents...)
			number++
		}
		base.chunk += uint64(p.Chunks)
		base.sample += p.Samples
	}
	return c, nil
}

func (v *verifier) scanOne(name string, number int) (scanned, error) {
	path := filepath.Join(v.path, filepath.FromSlash(name))
	f, err := os.Open(path)
	if err != nil {
		return scanned{}, failed(err, "open", path)
	}
	defer f.Close()
	s, err := scanShard(f, uint32(number))
	var e *fault.Error
	if errors.As(err, &e) {
		e.Path, e.Message = path, name+": "+e.Message
	}
	return s, err
}

// rebuildManifest finds the shards of an undivided data set by their names and takes what their headers say. The last
// one says that it is the last, so a set that lacks some is refused, as is one that was never finished.
func (v *verifier) rebuildManifest() error {
	if _, err := os.Stat(filepath.Join(v.path, filepath.FromSlash(chunk.JournalName))); err == nil {
		return fault.New(fault.NotDataset, "half-packed: pack it again to finish")
	}
	names, err := filepath.Glob(filepath.Join(v.path, chunk.ShardDir, "*.rdx"))
	if err != nil || len(names) == 0 {
		return fault.New(fault.NotDataset, "not a data set: no %s and no shards", chunk.ManifestName)
	}
	c := contents{}
	for i := range names {
		name := chunk.ShardName(i)
		s, err := v.scanOne(name, i)
		if err != nil {
			return fmt.Errorf("manifest is lost, and so is what would rebuild it: %w", err)
		}
		if int(s.header.Number) != i || s.header.Last != (i == len(names)-1) {
			return fault.New(fault.Corrupt, "manifest is lost, and so are shards: %s is not number %d of %d", name, i, len(names))
		}
		sum, err := fileSum(filepath.Join(v.path, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		c.head = s.header.Head
		c.shards = append(c.shards, chunk.Shard{
			Name: name, Bytes: s.header.Bytes, Chunks: s.header.Chunks, Samples: s.header.Samples, Sum: chunk.Hex32(sum),
		})
		c.entries = slices.Concat(c.entries, s.entries)
		c.digests = slices.Concat(c.digests, s.contents)
	}
	if err := c.head.Schema.Validate(); err != nil {
		return fault.Wrap(fault.Corrupt, err, "shard headers")
	}
	v.m, _, err = c.manifest(-1, nil, 0, 0)
	v.index = chunk.Index{Entries: c.entries}
	return err
}

func fileSum(path string) (sum uint32, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, failed(err, "open", path)
	}
	defer f.Close()
	b := make([]byte, 1<<20)
	for {
		n, err := f.Read(b)
		sum = chunk.SumMore(sum, b[:n])
		if n == 0 {
			return sum, nil
		}
		if err != nil {
			return 0, failed(err, "read", path)
		}
	}
}

// publishManifest writes the rebuilt manifest and index, with what reading the samples told, if nothing is damaged.
func (v *verifier) publishManifest() error {
	if slices.ContainsFunc(v.report.Damage, func(d Damage) bool { return d.Shard >= 0 }) {
		return nil
	}
	c := contents{head: v.m.Head, shards: v.m.Shards, entries: v.index.Entries, digests: v.digests}
	m, index, err := c.manifest(v.label, &v.labels, v.source, 0)
	if err != nil {
		return err
	}
	b, err := m.Encode()
	if err != nil {
		return err
	}
	if err := replace(filepath.Join(v.path, chunk.IndexName), index); err != nil {
		return err
	}
	if err := replace(filepath.Join(v.path, chunk.ManifestName), b); err != nil {
		return err
	}
	v.report.Repaired = append(v.report.Repaired, chunk.ManifestName, chunk.IndexName)
	return nil
}
