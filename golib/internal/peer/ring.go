package peer

import (
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// ring is the memory of a lane's incoming samples: one place for each of the ordinals that may be in memory at once,
// whoever sends them. It lies outside of Go's heap, where it would count twice, and pages that were never needed cost
// nothing.
type ring struct {
	mem    []byte
	stride int
	places int
}

// newRing maps a ring. The mapping ends when its owner, the lane, can't be reached any more.
func newRing(owner *lane, places, largest int) (*ring, error) {
	const line = 64 // of the processor's cache: two places never share one
	r := &ring{stride: (max(largest, 1) + line - 1) &^ (line - 1), places: places}
	size := r.stride * places
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fault.Wrap(fault.Memory, err, "map %d bytes for %d samples of peers", size, places)
	}
	r.mem = mem
	runtime.AddCleanup(owner, func(mem []byte) { _ = unix.Munmap(mem) }, mem)
	return r, nil
}

// at is the place of an ordinal.
func (r *ring) at(ordinal uint64) []byte {
	i := int(ordinal%uint64(r.places)) * r.stride
	return r.mem[i : i+r.stride : i+r.stride]
}

// drain gives the pages back, though whoever still looks at a sample does not crash.
func (r *ring) drain() { _ = unix.Madvise(r.mem, unix.MADV_DONTNEED) }
