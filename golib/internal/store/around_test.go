package store

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// chunks of 64 KiB, one behind the other.
type row struct{ count int }

const rowChunk = 64 << 10

func (r row) Chunks() int { return r.count }

func (r row) Extent(c uint32) Extent {
	return Extent{Offset: int64(c) * rowChunk, Length: rowChunk}
}

// coldRow is a file of three and a half extents whose pages are in no cache, as a source.
func coldRow(t *testing.T) (source *Flat, fd int) {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	const size = 3*extent + extent/2
	if _, err := f.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if !holds(int(f.Fd()), 0, size) {
		t.Skip("the system does not tell what its page cache has")
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	forget(t, int(f.Fd()), 0, size)
	source = NewFlat(NewLocal(dir, []string{"f"}, Auto, size), row{size / rowChunk})
	t.Cleanup(func() { source.Close() })
	return source, int(f.Fd())
}

func forget(t *testing.T, fd int, from, to int64) {
	t.Helper()
	if err := unix.Fadvise(fd, from, to-from, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	if holds(fd, from, to) {
		t.Skip("this file system's page cache can't be emptied")
	}
}

func land(t *testing.T, s *Flat, at int64) {
	t.Helper()
	dst := make([]byte, rowChunk+page)
	if _, err := s.Land(t.Context(), uint32(at/rowChunk), dst[:rowChunk], nil); err != nil {
		t.Fatal(err)
	}
}

// TestAround: once the trainer starves, the rest of an extent follows the chunk that is read from it, and nothing else; if
// the page cache loses it, no more is brought.
func TestAround(t *testing.T) {
	s, fd := coldRow(t)
	cached := func(number int64) bool {
		return holds(fd, number*extent, min((number+1)*extent, 3*extent+extent/2))
	}
	land(t, s, 4*rowChunk)
	if cached(0) {
		t.Error("an extent was brought before anybody starved")
	}
	s.Around()
	land(t, s, extent+40*rowChunk)
	if !cached(1) || cached(2) {
		t.Errorf("extents cached: %v (wanted), %v (not)", cached(1), cached(2))
	}
	land(t, s, 3*extent+rowChunk)
	if !cached(3) {
		t.Error("the last extent, which is not whole, was not brought")
	}
	forget(t, fd, extent, 2*extent)
	land(t, s, extent+80*rowChunk)
	land(t, s, 2*extent+5*rowChunk)
	if cached(1) || cached(2) {
		t.Errorf("extents cached after the page cache lost one: %v, %v", cached(1), cached(2))
	}
}

// TestAroundEndsWhereAdviceIsNotTaken: a file that can't be advised on is asked for once.
func TestAroundEndsWhereAdviceIsNotTaken(t *testing.T) {
	var n neighbours
	n.kept.Store(true)
	n.bring(&openFile{fd: -1}, 0, rowChunk)
	if !n.lost.Load() || len(n.brought) > 0 {
		t.Errorf("lost: %v, %d extents brought", n.lost.Load(), len(n.brought))
	}
}

// TestAroundNeedsACacheThatKeeps: what is gone when its chunk has been landed is not worth bringing.
func TestAroundNeedsACacheThatKeeps(t *testing.T) {
	s, fd := coldRow(t)
	s.Around()
	o, err := s.files.(*Local).open.get(0, s.files.Name(0))
	if err != nil {
		t.Fatal(err)
	}
	s.files.(*Local).around.landed(o, 0, rowChunk) // as if it had just been read, past the page cache
	s.files.(*Local).open.put(o)
	land(t, s, 40*rowChunk)
	if holds(fd, 100*rowChunk, extent) {
		t.Error("an extent was brought into a page cache that keeps nothing")
	}
}
