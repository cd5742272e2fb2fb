package buffer

import (
	"fmt"
	"math"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Arena is one memfd, mapped once, much larger than the budget: address space costs nothing, and a region is
// never moved or split. What it may hold at once is its quota.
type Arena struct {
	budget *Budget
	file   *os.File
	mem    []byte

	// Below: guarded by budget.mu.
	classes [][]*Region          // free regions by class
	slack   map[*Region]struct{} // regions in use that hold more pages than they need
	next    int64                // start of the address space not yet given out
	quota   int64                // bound on live
	live    int64                // bytes of regions in use, whole pages
	count   int                  // regions in use
	closed  bool
}

// NewArena maps an arena that may hold quota bytes at once.
func (b *Budget) NewArena(name string, quota int64) (*Arena, error) {
	fd, err := unix.MemfdCreate("redox-"+name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd for %s: %w", name, err)
	}
	file := os.NewFile(uintptr(fd), "memfd:redox-"+name)
	// Every size class may in turn hold the whole limit. Some machines bound address space (ulimit -v), so less
	// is tried before giving up.
	var mem []byte
	const most = 8 << 40
	for space := max(64*min(b.limit, most/64), 1<<30); ; space /= 2 {
		space &^= Page - 1
		if err = unix.Ftruncate(fd, space); err == nil {
			mem, err = unix.Mmap(fd, 0, int(space), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
		}
		if err == nil {
			break
		}
		if space < min(2*b.limit, most/8) {
			file.Close()
			return nil, fmt.Errorf("map %d bytes for %s: %w", space, name, err)
		}
	}
	// Another process that has the file must not be able to cut it off under those who read it.
	if _, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		_ = unix.Munmap(mem)
		file.Close()
		return nil, fmt.Errorf("seal the size of %s: %w", name, err)
	}
	a := &Arena{budget: b, file: file, mem: mem, quota: quota, slack: map[*Region]struct{}{}}
	b.mu.Lock()
	b.arenas = append(b.arenas, a)
	b.mu.Unlock()
	return a, nil
}

// Alloc returns a region of size bytes, or nil when quota or budget do not allow it now.
func (a *Arena) Alloc(size int64) *Region {
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	need := Pages(max(size, 1))
	if a.closed || a.live+need > a.quota {
		return nil
	}
	r := a.pick(classOf(size), need)
	if r == nil {
		return nil
	}
	// From here the region's own pages no longer count as free, so that making room cannot take them.
	b.free -= r.touched
	if extra := need - r.touched; extra > 0 {
		if !b.makeRoom(extra) {
			b.free += r.touched
			a.classes[r.class] = append(a.classes[r.class], r)
			return nil
		}
		b.take(extra)
		r.touched = need
	} else if extra < 0 {
		// Chunks differ a little in size. Pages beyond this one's stay for the next, until somebody needs the room.
		b.free -= extra
		a.slack[r] = struct{}{}
	}
	r.size, r.refs = size, 1
	a.live += need
	a.count++
	return r
}

// grown is how many classes larger than asked for a new region is in address space: twice as large, so that it can serve
// larger ones later. nearClasses is how much larger it may be than what it is used for: four times.
const (
	grown       = 16
	nearClasses = 2*grown + 1
)

// pick takes the free region that has about as many pages as needed: too few are page faults, each of which costs more
// than the copy into the page; too many are missed by whoever is larger. If none has any, it takes an empty one or makes
// one; where address space has run out, any that is large enough serves.
func (a *Arena) pick(class int, need int64) *Region {
	for len(a.classes) <= class+grown {
		a.classes = append(a.classes, nil)
	}
	bestClass, best, least := -1, 0, int64(math.MaxInt64)
	for c := class; c < min(len(a.classes), class+nearClasses); c++ {
		for i, r := range a.classes[c] {
			if off := max(r.touched-need, need-r.touched); r.touched > 0 && off <= least {
				bestClass, best, least = c, i, off
			}
		}
	}
	if bestClass >= 0 {
		r := a.classes[bestClass][best]
		a.classes[bestClass] = slices.Delete(a.classes[bestClass], best, best+1)
		return r
	}
	if r := a.pop(class + grown); r != nil {
		return r
	}
	if r := a.carve(class); r != nil {
		return r
	}
	for c := class; c < len(a.classes); c++ {
		if r := a.pop(c); r != nil {
			return r
		}
	}
	return nil
}

// carve makes a region of unused address space, with room to grow while more than half of that is left.
func (a *Arena) carve(class int) *Region {
	space := int64(len(a.mem))
	if a.next+classSize(class+grown) <= space/2 {
		class += grown
	}
	size := classSize(class)
	if a.next+size > space {
		return nil
	}
	r := &Region{arena: a, offset: a.next, class: class}
	a.next += size
	return r
}

func (a *Arena) pop(class int) *Region {
	list := a.classes[class]
	if len(list) == 0 {
		return nil
	}
	r := list[len(list)-1]
	a.classes[class] = list[:len(list)-1]
	return r
}

// put takes a region back; true: the arena is closed and this was the last one. budget.mu is held.
func (a *Arena) put(r *Region) bool {
	poison(r.Bytes())
	need := Pages(max(r.size, 1))
	a.live -= need
	a.count--
	r.size = 0
	delete(a.slack, r)
	a.budget.free += need // its slack counted already
	a.classes[r.class] = append(a.classes[r.class], r)
	return a.closed && a.count == 0
}

// punch gives a region's pages beyond keep, which count as free, back to the system. budget.mu is held.
func (a *Arena) punch(r *Region, keep int64) {
	a.budget.free -= r.touched - keep
	a.unmapTail(r, keep)
}

func (a *Arena) unmapTail(r *Region, keep int64) {
	const mode = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	if err := unix.Fallocate(int(a.file.Fd()), mode, r.offset+keep, r.touched-keep); err != nil {
		// tmpfs always supports it; if it ever does not, the bound would be a lie.
		panic(fmt.Sprintf("buffer: punch hole: %v", err))
	}
	a.budget.used -= r.touched - keep
	r.touched = keep
}

// smallest is the free region with the fewest pages, the least likely to be what somebody needs next; nil if none has
// any. budget.mu is held.
func (a *Arena) smallest() *Region {
	var least *Region
	for _, list := range a.classes {
		for _, r := range list {
			if r.touched > 0 && (least == nil || r.touched < least.touched) {
				least = r
			}
		}
	}
	return least
}

// cutSlack gives back pages that regions in use don't need, until over is covered. budget.mu is held.
func (a *Arena) cutSlack(over int64) int64 {
	for r := range a.slack {
		if over <= 0 {
			break
		}
		over -= r.touched - Pages(max(r.size, 1))
		a.punch(r, Pages(max(r.size, 1)))
		delete(a.slack, r)
	}
	return over
}

// SetQuota changes how many bytes may be in use at once; regions already lent are not taken back.
func (a *Arena) SetQuota(n int64) {
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	a.quota = n
}

// Quota is how many bytes may be in use at once.
func (a *Arena) Quota() int64 {
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	return a.quota
}

// Room is how many bytes Alloc could give out before the quota is reached.
func (a *Arena) Room() int64 {
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	return a.quota - a.live
}

// Live is how many bytes are in use, whole pages.
func (a *Arena) Live() int64 {
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	return a.live
}

// Fd is the arena's memfd, for handing it to another process. It belongs to the arena.
func (a *Arena) Fd() uintptr { return a.file.Fd() }

// Size is the length of that file, nearly all of it holes.
func (a *Arena) Size() int64 { return int64(len(a.mem)) }

// Trim gives back the pages of all free regions.
func (a *Arena) Trim() {
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	for _, list := range a.classes {
		for _, r := range list {
			if r.touched > 0 {
				a.punch(r, 0)
			}
		}
	}
}

// Close ends allocation. Memory still lent stays valid; the mapping goes with the last region.
func (a *Arena) Close() {
	a.budget.mu.Lock()
	unmap := !a.closed && a.count == 0
	a.closed = true
	a.budget.mu.Unlock()
	if unmap {
		a.destroy()
	}
}

// destroy unmaps; nobody holds a region any more and Alloc refuses.
func (a *Arena) destroy() {
	b := a.budget
	b.mu.Lock()
	for _, list := range a.classes {
		for _, r := range list {
			b.free -= r.touched
			b.used -= r.touched
		}
	}
	a.classes = nil
	b.arenas = slices.DeleteFunc(b.arenas, func(x *Arena) bool { return x == a })
	b.mu.Unlock()
	_ = unix.Munmap(a.mem)
	a.mem = nil
	a.file.Close()
}
