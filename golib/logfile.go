package redox

import (
	"bytes"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// maxLogFile bounds what the log file holds, and what waits for clients; it is memory.
const maxLogFile = 256 << 10

// logFile is an engine's log: a file, from which clients read its last words, and the lines that no client has taken.
type logFile struct {
	file  *os.File
	ended chan struct{}
	done  chan struct{}

	mu      sync.Mutex
	waiting []byte // whole lines
}

// startLogFile writes log lines into a file, until stopped.
func startLogFile(file *os.File) *logFile {
	l := &logFile{file: file, ended: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(l.done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				l.write()
			case <-l.ended:
				l.write()
				return
			}
		}
	}()
	return l
}

func (l *logFile) stop() { close(l.ended); <-l.done }

func (l *logFile) write() {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := ReadLog(64 << 10)
	if len(lines) == 0 {
		return
	}
	if info, err := l.file.Stat(); err == nil && info.Size() > maxLogFile {
		_ = unix.Ftruncate(int(l.file.Fd()), 0)
	}
	_, _ = l.file.Write(lines) // opened for appending
	l.waiting = append(l.waiting, lines...)
	for len(l.waiting) > maxLogFile {
		_, l.waiting, _ = bytes.Cut(l.waiting, []byte("\n"))
	}
}

// take returns the oldest lines that were not taken before, at most limit bytes.
func (l *logFile) take(limit int) []byte {
	l.write()
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.waiting)
	if n > limit {
		n = bytes.LastIndexByte(l.waiting[:limit], '\n') + 1
		if n == 0 { // a line that no message holds
			_, l.waiting, _ = bytes.Cut(l.waiting, []byte("\n"))
		}
	}
	lines := bytes.Clone(l.waiting[:n])
	l.waiting = l.waiting[n:]
	return lines
}
