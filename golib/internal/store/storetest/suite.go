package storetest

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"unsafe"

	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/store"
)

// Page is the alignment of direct reads.
const Page = 4096

// Aligned returns n bytes that start on a page and have room for whole pages.
func Aligned(n int64) []byte {
	rounded := (n + Page - 1) &^ (Page - 1)
	b := make([]byte, rounded+Page)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (Page - 1)
	return b[skip : skip+int(n) : skip+int(rounded)]
}

// Table is extents in a slice.
type Table []store.Extent

// Chunks implements store.Extents.
func (t Table) Chunks() int { return len(t) }

// Extent implements store.Extents.
func (t Table) Extent(c uint32) store.Extent { return t[c] }

// Suite checks a way of reading. open returns files with these contents.
func Suite(t *testing.T, open func(t *testing.T, contents [][]byte) store.Files) {
	contents := [][]byte{pattern(3*Page+700, 1), pattern(1<<20+1, 2), pattern(5000, 3)}
	table := Table{
		{File: 0, Offset: 0, Length: 3*Page + 700},
		{File: 0, Offset: Page, Length: 10},
		{File: 0, Offset: 5000, Length: 4000}, // not aligned: a tar's
		{File: 1, Offset: 0, Length: 1<<20 + 1},
		{File: 1, Offset: 1<<20 - 1, Length: 2},
		{File: 2, Offset: 4999, Length: 1},
	}
	want := func(c uint32) []byte {
		e := table[c]
		return contents[e.File][e.Offset : e.Offset+e.Length]
	}
	t.Run("land", func(t *testing.T) {
		s := store.NewFlat(open(t, contents), table)
		defer s.Close()
		var wg sync.WaitGroup
		for range 3 {
			for c := range uint32(len(table)) {
				wg.Go(func() {
					var seen []byte
					got, err := s.Land(t.Context(), c, Aligned(s.Room(c)), func(p []byte) { seen = append(seen, p...) })
					if err != nil {
						t.Errorf("chunk %d: %v", c, err)
					} else if !bytes.Equal(got, want(c)) || !bytes.Equal(seen, want(c)) {
						t.Errorf("chunk %d: other bytes than written, or than the tap saw", c)
					}
				})
			}
		}
		wg.Wait()
		if n := s.Counters(); n.Lands != int64(3*len(table)) || n.LandBytes == 0 || n.Ranges != 0 {
			t.Errorf("counters: %+v", n)
		}
	})
	t.Run("range", func(t *testing.T) {
		s := store.NewFlat(open(t, contents), table)
		defer s.Close()
		for c := range uint32(len(table)) {
			n := int64(len(want(c)))
			for _, r := range [][2]int64{{0, n}, {n / 2, n - n/2}, {n - 1, 1}} {
				dst := make([]byte, r[1])
				if err := s.Range(t.Context(), c, r[0], dst); err != nil || !bytes.Equal(dst, want(c)[r[0]:r[0]+r[1]]) {
					t.Errorf("chunk %d, %d bytes at %d: %v", c, r[1], r[0], err)
				}
			}
			if err := s.Range(t.Context(), c, n, make([]byte, 1)); err == nil {
				t.Errorf("chunk %d: a range beyond its end was read", c)
			}
		}
	})
	refusals(t, open, contents, table)
}

// refusals checks what can't be read.
func refusals(t *testing.T, open func(t *testing.T, contents [][]byte) store.Files, contents [][]byte, table Table) {
	t.Run("truncated", func(t *testing.T) {
		s := store.NewFlat(open(t, contents), Table{{File: 2, Offset: 0, Length: 5001}, {File: 2, Offset: 9000, Length: 5}})
		defer s.Close()
		for c := range uint32(2) {
			_, err := s.Land(t.Context(), c, Aligned(s.Room(c)), nil)
			if fault.KindOf(err) != fault.Corrupt {
				t.Errorf("chunk %d beyond the end of its file: %v", c, err)
			}
		}
		if err := s.Range(t.Context(), 0, 4999, make([]byte, 2)); fault.KindOf(err) != fault.Corrupt {
			t.Errorf("range beyond the end of its file: %v", err)
		}
	})
	t.Run("missing", func(t *testing.T) {
		s := store.NewFlat(open(t, contents), Table{{File: 3, Offset: 0, Length: 1}})
		defer s.Close()
		_, err := s.Land(t.Context(), 0, Aligned(s.Room(0)), nil)
		if fault.KindOf(err) != fault.IO {
			t.Errorf("a file that is not there: %v", err)
		}
	})
	t.Run("canceled", func(t *testing.T) {
		s := store.NewFlat(open(t, contents), table)
		defer s.Close()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Land(ctx, 0, Aligned(s.Room(0)), nil); err == nil {
			t.Error("a canceled read succeeded")
		}
	})
}

func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	x := uint32(seed)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}
