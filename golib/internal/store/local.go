package store

import (
	"context"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// IO says how local files are read.
type IO string

// Modes of local reading.
const (
	Auto     IO = "auto"     // through the page cache if the data fits well inside free memory, else direct
	DirectIO IO = "direct"   // past the page cache; buffered where the file system refuses
	Buffered IO = "buffered" // through the page cache
)

// ParseIO reads the option.
func ParseIO(s string) (IO, error) {
	switch io := IO(s); io {
	case "":
		return Auto, nil
	case Auto, DirectIO, Buffered:
		return io, nil
	}
	return "", fault.New(fault.Invalid, "io is %q: it must be \"auto\", \"direct\" or \"buffered\"", s)
}

// way is what a mode comes down to for one data set.
type way int

const (
	throughCache way = iota // buffered, and pages stay cached
	cacheFirst              // what is cached from there, the rest direct
	pastCache               // direct
)

// Local is numbered files in a directory.
type Local struct {
	dir     string
	names   []string
	way     way
	refused atomic.Bool // the file system has no direct reads: buffered, and pages dropped after use
	around  *neighbours // nil: there is no room for what nobody asked for
	open    *openFiles
}

var _ Files = (*Local)(nil)

// NewLocal returns the named files in dir. total is the data set's size, by which Auto decides.
func NewLocal(dir string, names []string, io IO, total int64) *Local {
	l := &Local{dir: dir, names: names}
	switch {
	case io == DirectIO:
		l.way = pastCache
	case io == Auto && !fitsCache(total):
		l.way = cacheFirst
	case fitsCache(total):
		l.around = &neighbours{}
	}
	advice := unix.FADV_NORMAL
	if l.way == throughCache {
		advice = unix.FADV_SEQUENTIAL // the kernel asks storage for twice as much at once, by default 256 KiB
	}
	l.open = newOpenFiles(maxOpen, advice)
	return l
}

// fitsCache says whether a data set fits well inside free memory: then later epochs cost no disk.
func fitsCache(total int64) bool { return total <= FreeMemory()/2 }

// Name implements Files.
func (l *Local) Name(file uint32) string {
	if int(file) >= len(l.names) {
		return l.dir
	}
	return filepath.Join(l.dir, l.names[file])
}

// ReadAt implements Files. It is pread(2) straight into dst, which may be memory that Go did not allocate; mapping the
// file instead would let a truncated one kill the process.
func (l *Local) ReadAt(_ context.Context, file uint32, off int64, dst []byte, whole bool) (int, How, error) {
	o, err := l.open.get(file, l.Name(file))
	if err != nil {
		return 0, Plain, err
	}
	defer l.open.put(o)
	if !whole {
		n, err := pread(o.fd, dst, off)
		return n, Plain, err
	}
	if l.way == cacheFirst {
		if n := cached(o.fd, dst[:min(len(dst), Piece)], off); n > 0 {
			return n, Cached, nil
		}
	}
	if l.way != throughCache && off%page == 0 && !l.refused.Load() {
		n, err := l.direct(o, dst, off)
		if err == nil {
			return n, Direct, nil
		}
		if err != unix.EINVAL && err != unix.EOPNOTSUPP {
			return 0, Plain, err
		}
		l.refused.Store(true)
	}
	n, err := pread(o.fd, dst[:min(len(dst), Piece)], off)
	return n, Plain, err
}

func (l *Local) direct(o *openFile, dst []byte, off int64) (int, error) {
	fd, err := o.directFd()
	if err != nil {
		return 0, err
	}
	return pread(fd, dst, off)
}

func pread(fd int, dst []byte, off int64) (int, error) {
	for {
		n, err := unix.Pread(fd, dst, off)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// cached reads what the page cache holds without waiting for storage; 0: nothing there, or the system can't tell.
func cached(fd int, dst []byte, off int64) int {
	n, err := unix.Preadv2(fd, [][]byte{dst}, off, unix.RWF_NOWAIT)
	if err != nil || n < len(dst) && n%page != 0 {
		return 0
	}
	return n
}

// Hint implements Files: where direct reads are refused, the kernel is told what comes next. Who hints does not wait
// for storage, so a file that is not open yet is left to its first read.
func (l *Local) Hint(file uint32, off, n int64) {
	if l.refused.Load() {
		if o := l.open.cached(file); o != nil {
			l.advise(o, off, n, unix.FADV_WILLNEED)
		}
	}
}

// Around implements Files: what fits well inside free memory may as well be read in the order in which it lies.
func (l *Local) Around(file uint32, off, n int64) {
	if l.around == nil {
		return
	}
	if o := l.open.cached(file); o != nil {
		defer l.open.put(o)
		l.around.bring(o, off, n)
	}
}

// Done implements Files: where direct reads were wanted but refused, pages are dropped after use, as other data of the
// machine is worth more than chunks that come again in an epoch's time.
func (l *Local) Done(file uint32, off, n int64) {
	if l.around.unsure() {
		if o := l.open.cached(file); o != nil {
			l.around.landed(o, off, n)
			l.open.put(o)
		}
	}
	if l.refused.Load() && l.way != throughCache {
		if o := l.open.cached(file); o != nil {
			l.advise(o, off, n, unix.FADV_DONTNEED)
		}
	}
}

func (l *Local) advise(o *openFile, off, n int64, advice int) {
	defer l.open.put(o)
	_ = unix.Fadvise(o.fd, off, n, advice)
}

// Close implements Files.
func (l *Local) Close() error {
	l.open.close()
	return nil
}
