package store

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// extent is what is brought into the page cache in one go around a chunk: so much that a disk spends its time reading
	// and not seeking, so little that who waits for many chunks is not kept waiting for long.
	extent = 16 << 20
	// advice is what one call asks for. The kernel cuts what is longer than the device's read-ahead, by default this.
	advice = 128 << 10
	// A file system that has too many requests under way (FUSE) ignores further advice. It is given again after a pause; one
	// that has ignored it so often in a row takes none.
	advicePause  = 2 * time.Millisecond
	advicePauses = 200
)

// neighbours brings what lies around a chunk into the page cache, each extent once. It needs a page cache that can be
// asked what it has (Linux 6.5). It ends for good where that does not keep what was read (a FUSE mount with direct I/O)
// or loses it, as storage would be read twice, and where advice is not taken, as each try costs time. Chunks that are not
// small beside an extent are left alone.
type neighbours struct {
	kept atomic.Bool // a chunk that was landed is in the page cache
	lost atomic.Bool

	mu      sync.Mutex
	brought map[place]struct{}
}

// place is an extent.
type place struct {
	file   uint32
	number int64
}

// bring asks for what lies around a range of a file that will be read next.
func (n *neighbours) bring(o *openFile, off, length int64) {
	if 4*length > extent || n.lost.Load() || !n.kept.Load() {
		return
	}
	n.mu.Lock() // also, so that extents are asked for one after another: a disk has one head
	defer n.mu.Unlock()
	for i := off / extent; i*extent < off+length; i++ {
		from, to := max(off, i*extent), min(off+length, (i+1)*extent)
		if holds(o.fd, from, to) {
			continue
		}
		if _, again := n.brought[place{o.file, i}]; again || !advise(o.fd, i*extent, (i+1)*extent) {
			n.lost.Store(true)
			return
		}
		if n.brought == nil {
			n.brought = map[place]struct{}{}
		}
		n.brought[place{o.file, i}] = struct{}{}
	}
}

// advise asks for a range, and says whether it is cached or about to be.
func advise(fd int, from, to int64) bool {
	var stat unix.Stat_t
	if unix.Fstat(fd, &stat) != nil {
		return false
	}
	to = min(to, (stat.Size+page-1)&^(page-1))
	pauses := 0
	for from < to {
		end := min(from+advice, to)
		if unix.Fadvise(fd, from, end-from, unix.FADV_WILLNEED) != nil {
			return false
		}
		switch {
		case holds(fd, from, end):
			from, pauses = end, 0
		case pauses == advicePauses:
			return false
		default:
			pauses++
			time.Sleep(advicePause)
		}
	}
	return true
}

// unsure says that nobody has looked yet whether the page cache keeps what was read.
func (n *neighbours) unsure() bool { return n != nil && !n.kept.Load() && !n.lost.Load() }

// landed looks whether it does: at a range that was just read.
func (n *neighbours) landed(o *openFile, off, length int64) {
	if holds(o.fd, off, off+length) {
		n.kept.Store(true)
	} else {
		n.lost.Store(true)
	}
}

// holds says whether the page cache has all of a range of whole pages, or is about to have it; false where that can't be
// told.
func holds(fd int, from, to int64) bool {
	var stat unix.Cachestat_t
	err := unix.Cachestat(uint(fd), &unix.CachestatRange{Off: uint64(from), Len: uint64(to - from)}, &stat, 0)
	return err == nil && int64(stat.Cache)*page >= to-from
}
