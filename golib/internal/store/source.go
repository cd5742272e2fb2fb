// Package store reads chunks from where a data set lies. It is for package resident (whole chunks into arena
// memory) and package node (single samples in place of a chunk that is not held).
//
// There is one door, Source: what lies behind it (local files here; object stores, tars, Parquet, a cache on SSD
// later) decides how a chunk is read or decoded. Requests to it are a Queue ordered by due time and drained by a
// bounded pool; a source that must be driven from outside (Python's fsspec) drains the same queue with Take.
//
// Sources retry what may pass and say for good what will not; errors are fault.IO (storage failed) or
// fault.Corrupt (the data ends early). The package does not know what a chunk contains: checksums are its
// caller's business, for which Land hands out the bytes in pieces while they are still in the processor's cache.
package store

import "context"

// Unit is the smallest thing a source can read on its own.
type Unit int

// Units of fallback reads.
const (
	Sample Unit = iota // any range of a chunk's bytes
	Chunk              // only whole chunks (a source that decodes, such as Parquet)
)

// Piece is how much of a chunk is read and shown to the tap at once: small enough to stay in the L2 cache between the
// copy and the checksum.
const Piece = 256 << 10

// Source is a data set's bytes, chunk by chunk. All methods may be called concurrently.
type Source interface {
	// Room is how many bytes of memory a chunk takes once landed, with slack for alignment.
	Room(chunk uint32) int64
	// Land reads a chunk into dst, which starts on a page, has Room(chunk) bytes and a capacity of whole pages.
	// It returns the part of dst that is the chunk. tap, if not nil, sees that part in order, piece by piece.
	Land(ctx context.Context, chunk uint32, dst []byte, tap func([]byte)) ([]byte, error)
	// Range reads len(dst) bytes at off of the chunk's stored bytes. Only for Unit() == Sample.
	Range(ctx context.Context, chunk uint32, off int64, dst []byte) error
	// Hint says that a chunk will be landed soon.
	Hint(chunk uint32)
	// Around says that all chunks will be landed soon and storage is what is waited for: from now on a landing may bring
	// what lies around its chunk into a cache of the system's.
	Around()
	// Unit says whether Range works.
	Unit() Unit
	// Name is the file (or URL) that a chunk lies in, for messages.
	Name(chunk uint32) string
	// Counters are what was read so far.
	Counters() Counters
	Close() error
}

// Counters count what a source did. Lands and Ranges are requests; one may take several system calls.
type Counters struct {
	Lands, Ranges         int64
	LandBytes, RangeBytes int64 // alignment included
	CachedBytes           int64 // of LandBytes: from the page cache, where that can be told
	DirectBytes           int64 // of LandBytes: past the page cache
	Retries               int64 // reads repeated after a transient failure
}

// Extent is where a chunk lies in a file.
type Extent struct {
	File           uint32
	Offset, Length int64
}

// Extents is the table of all chunks' places.
type Extents interface {
	Chunks() int
	Extent(chunk uint32) Extent
}

// Files is a set of numbered files that can be read at an offset: the smaller door behind flat sources. All methods
// may be called concurrently.
type Files interface {
	// ReadAt reads up to len(dst) bytes and may read fewer, like read(2), so that a caller can look at them while
	// they are in cache; 0 without an error is the end of the file. whole says that a chunk is being landed: off and
	// dst are on pages then, unless the read before was a short one.
	ReadAt(ctx context.Context, file uint32, off int64, dst []byte, whole bool) (n int, how How, err error)
	// Hint says that a whole read of this range comes soon; Done that the range will not be read again soon.
	Hint(file uint32, off, n int64)
	Done(file uint32, off, n int64)
	// Around says that what lies around a range, which is read next, is read soon, too.
	Around(file uint32, off, n int64)
	Name(file uint32) string
	Close() error
}

// How says which way bytes came.
type How int

// Ways.
const (
	Plain  How = iota // through the page cache, or no telling
	Cached            // were in the page cache
	Direct            // past the page cache
)
