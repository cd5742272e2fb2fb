package main

import (
	"context"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// A model says what a store costs.
type model struct {
	open, jump   time.Duration // of waiting, by any number of requests at once
	seek         time.Duration // of the shared pipe's own time for each jump
	shared, head *pipe         // bytes; opens
	direct       bool          // the kernel keeps no pages
	counters     counters
}

// A node is a file or folder that passes everything through, except opening.
type node struct {
	fs.LoopbackNode
	model *model
}

func (n *node) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	begun, m := now(), n.model
	fd, err := syscall.Open(n.RootData.Path+"/"+n.Path(n.Root()), syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, 0, fs.ToErrno(err)
	}
	m.counters.opens.Add(1)
	m.counters.wait(begun, m.head.reserve(begun, 1, 0)+int64(m.open))
	var how uint32
	if m.direct {
		how = fuse.FOPEN_DIRECT_IO
	}
	return &handle{fd: fd, model: m}, how, 0
}

// streams is how many readers on one handle are told apart: a read that goes on where one of the last so many ended is
// no jump. A single large read arrives in pieces of 1 MiB, and a disk's queue would not send the head elsewhere between
// them; neither do we.
const streams = 32

// near is how far from such an end a read may begin: of pieces that are under way together, one overtakes another, which a
// disk's queue would sort.
const near = 512 << 10

// A handle is an open file.
type handle struct {
	fd    int
	model *model

	mu   sync.Mutex
	ends [streams]int64 // the latest first; 0 where there was none yet: the first byte of a file is a jump, too
}

// goesOn tells whether a read continues an earlier one, or nearly, and notes its end.
func (h *handle) goesOn(from, to int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, found := streams-1, false
	for i, end := range h.ends {
		if end > 0 && from-end <= near && end-from <= near {
			at, found = i, true
			break
		}
	}
	copy(h.ends[1:at+1], h.ends[:at])
	h.ends[0] = to
	return found
}

func (h *handle) Read(_ context.Context, into []byte, from int64) (fuse.ReadResult, syscall.Errno) {
	begun, m := now(), h.model
	n, err := syscall.Pread(h.fd, into, from)
	if err != nil {
		return nil, fs.ToErrno(err)
	}
	if n == 0 { // looking for the end costs nothing: the size is known
		return fuse.ReadResultData(nil), 0
	}
	m.counters.reads.Add(1)
	m.counters.bytes.Add(int64(n))
	at, seek := begun, int64(0)
	if !h.goesOn(from, from+int64(n)) {
		m.counters.jumps.Add(1)
		at += int64(m.jump)
		seek = int64(m.seek)
	}
	m.counters.wait(begun, m.shared.reserve(at, float64(n), seek))
	return fuse.ReadResultData(into[:n]), 0
}

func (h *handle) Release(context.Context) syscall.Errno {
	return fs.ToErrno(syscall.Close(h.fd))
}
