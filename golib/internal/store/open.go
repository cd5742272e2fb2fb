package store

import (
	"container/list"
	"sync"

	"golang.org/x/sys/unix"
)

// maxOpen bounds cached file descriptors (two a file); 1 TB of data is 4,000 shard files, and many users have a limit
// of 1,024 descriptors for everything.
const maxOpen = 128

// openFiles keeps files open, the last used ones when idle. It opens a file once even if many ask.
type openFiles struct {
	advice int // to the kernel on how files are read, or FADV_NORMAL
	mu     sync.Mutex
	limit  int
	byFile map[uint32]*openFile
	idle   *list.List // of *openFile; front: used last
	closed bool
}

// openFile is one open file; fd is valid while a reference is held.
type openFile struct {
	fd   int
	path string
	file uint32
	refs int
	elem *list.Element // in idle, if refs is 0

	mu        sync.Mutex
	direct    int // descriptor with O_DIRECT, or -1
	directErr error
}

func newOpenFiles(limit, advice int) *openFiles {
	return &openFiles{advice: advice, limit: limit, byFile: map[uint32]*openFile{}, idle: list.New()}
}

// get returns the file with a reference. Opening happens outside the lock, as it may take as long as storage likes.
func (f *openFiles) get(file uint32, path string) (*openFile, error) {
	if o := f.cached(file); o != nil {
		return o, nil
	}
	fd, err := openRetry(path, unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if f.advice != unix.FADV_NORMAL {
		_ = unix.Fadvise(fd, 0, 0, f.advice)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if o := f.byFile[file]; o != nil { // another was faster
		unix.Close(fd)
		f.ref(o)
		return o, nil
	}
	o := &openFile{fd: fd, path: path, file: file, refs: 1, direct: -1}
	f.byFile[file] = o
	f.shrink()
	return o, nil
}

func (f *openFiles) cached(file uint32) *openFile {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := f.byFile[file]
	if o != nil {
		f.ref(o)
	}
	return o
}

func (f *openFiles) ref(o *openFile) {
	o.refs++
	if o.elem != nil {
		f.idle.Remove(o.elem)
		o.elem = nil
	}
}

func (f *openFiles) put(o *openFile) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o.refs--; o.refs > 0 {
		return
	}
	o.elem = f.idle.PushFront(o)
	f.shrink()
}

func (f *openFiles) shrink() {
	for f.idle.Len() > 0 && (f.closed || len(f.byFile) > f.limit) {
		o := f.idle.Remove(f.idle.Back()).(*openFile)
		delete(f.byFile, o.file)
		unix.Close(o.fd)
		if o.direct >= 0 {
			unix.Close(o.direct)
		}
	}
}

// close closes what is idle; files in use are closed when given back.
func (f *openFiles) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.shrink()
}

// directFd opens the file a second time, past the page cache.
func (o *openFile) directFd() (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.direct < 0 && o.directErr == nil {
		fd, err := openRetry(o.path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_DIRECT)
		if err != nil {
			if !transient(err) {
				o.directErr = err
			}
			return -1, err
		}
		o.direct = fd
	}
	return o.direct, o.directErr
}

func openRetry(path string, flags int) (int, error) {
	for {
		fd, err := unix.Open(path, flags, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}
