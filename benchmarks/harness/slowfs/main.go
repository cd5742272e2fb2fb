// Slowfs shows a folder again, read-only and as slow as the storage that it is told to be: so much waiting for an open,
// for a read that does not go on where one ended, a shared pipe for the bytes, a head that one request has at a time.
//
// It says "ready" when the folder is there, answers each line on its standard input with a line of JSON, what it did
// since the last one, and unmounts when its input ends, so also when who started it dies. It wants to run before all
// others (chrt -f); "want" and "got" tell whether it did: the seconds that all requests together should have waited, and
// did.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

func main() {
	from := flag.String("from", "", "the folder to show")
	at := flag.String("at", "", "where to show it")
	open := flag.Duration("open", 0, "waiting for an open")
	jump := flag.Duration("jump", 0, "waiting for a read that does not go on where one ended")
	seek := flag.Duration("seek", 0, "as jump, but one request at a time, as a disk's head moves")
	rate := flag.Float64("rate", 0, "bytes a second of all readers together, in millions")
	opens := flag.Float64("opens", 0, "opens a second of all together")
	direct := flag.Bool("direct", false, "let the kernel keep no pages; nobody can map files then")
	flag.Parse()
	m := &model{open: *open, jump: *jump, seek: *seek, shared: newPipe(*rate * 1e6), head: newPipe(*opens), direct: *direct}
	if *seek > 0 && m.shared == nil {
		fail(fmt.Errorf("-seek needs -rate: both are the head's time"))
	}
	// Of all threads to come: a timer may be late by this.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	server, err := mount(*from, *at, m)
	if err != nil {
		fail(err)
	}
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if err := json.NewEncoder(os.Stdout).Encode(m.counters.take()); err != nil {
			break
		}
	}
	for server.Unmount() != nil { // busy: who read it is ending
		time.Sleep(50 * time.Millisecond)
	}
}

func mount(from, at string, m *model) (*fuse.Server, error) {
	var status syscall.Stat_t
	if err := syscall.Stat(from, &status); err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	root := &fs.LoopbackRoot{Path: from, Dev: uint64(status.Dev)}
	root.NewNode = func(data *fs.LoopbackRoot, _ *fs.Inode, _ string, _ *syscall.Stat_t) fs.InodeEmbedder {
		return &node{LoopbackNode: fs.LoopbackNode{RootData: data}, model: m}
	}
	root.RootNode = &node{LoopbackNode: fs.LoopbackNode{RootData: root}, model: m}
	hour := time.Hour // names and sizes don't change, and looking at them is free
	return fs.Mount(at, root.RootNode, &fs.Options{
		AttrTimeout:  &hour,
		EntryTimeout: &hour,
		MountOptions: fuse.MountOptions{
			FsName: "slowfs", Name: "slowfs", DirectMount: true, Options: []string{"ro"}, DisableXAttrs: true,
			MaxWrite: 1 << 20, MaxReadAhead: 1 << 20, MaxBackground: 256,
		},
	})
}

// A report is what happened since the last one.
type report struct {
	Opens int64   `json:"opens"`
	Reads int64   `json:"reads"`
	Jumps int64   `json:"jumps"`
	Bytes int64   `json:"bytes"`
	Want  float64 `json:"want_s"`
	Got   float64 `json:"got_s"`
}

func (c *counters) take() report {
	return report{
		Opens: c.opens.Swap(0), Reads: c.reads.Swap(0), Jumps: c.jumps.Swap(0), Bytes: c.bytes.Swap(0),
		Want: float64(c.want.Swap(0)) / 1e9, Got: float64(c.got.Swap(0)) / 1e9,
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "slowfs:", err)
	os.Exit(1)
}
