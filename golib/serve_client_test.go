package redox_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	redox "github.com/redox-loader/redox/golib"
)

// The messages as docs/attached.md has them, written down a second time.
const (
	msgHello, msgBegin, msgNext, msgClaim, msgRelease = 1, 2, 3, 4, 5
	msgSet, msgLeave                                  = 7, 12
	msgFailed, msgWelcome, msgBegan, msgBatch         = 65, 66, 67, 68
	msgEnded, msgClaimed                              = 69, 70
	msgMemory, msgRead, msgCounts, msgWhoMeets        = 6, 14, 15, 16
	msgMapped, msgText                                = 71, 72
)

// served is an engine in this process, with a trainer that is a process of its own.
type served struct {
	t       *testing.T
	name    string
	path    string
	trainer *exec.Cmd
	ended   chan error
}

func serve(t *testing.T) *served {
	t.Helper()
	s := &served{t: t, name: fmt.Sprintf("@redox-test-%d-%s", os.Getpid(), t.Name()), ended: make(chan error, 1)}
	s.path = pathOf(t, open(t))
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: s.name, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	file, err := listener.File()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	file.Close()
	listener.Close()
	s.trainer = exec.Command("sleep", "100")
	if err := s.trainer.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.ended <- redox.Serve(fd, nil) }()
	t.Cleanup(s.stop)
	return s
}

func pathOf(t *testing.T, d *redox.Dataset) string {
	t.Helper()
	text, err := d.InfoJSON()
	if err != nil {
		t.Fatal(err)
	}
	var info struct{ Path string }
	if err := json.Unmarshal(text, &info); err != nil {
		t.Fatal(err)
	}
	return info.Path
}

// stop kills the trainer: the engine must end by itself.
func (s *served) stop() {
	if s.trainer.ProcessState != nil {
		return
	}
	_ = s.trainer.Process.Kill()
	_ = s.trainer.Wait()
	select {
	case err := <-s.ended:
		if err != nil {
			s.t.Error(err)
		}
	case <-time.After(5 * time.Second):
		s.t.Error("the engine outlived its trainer")
	}
}

// peer is a client's connection.
type peer struct {
	t     *testing.T
	conn  *net.UnixConn
	arena []byte
}

func (s *served) connect(options string) (p *peer, kind byte, body []byte) {
	s.t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: s.name, Net: "unixpacket"})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	p = &peer{t: s.t, conn: conn}
	loader := fmt.Sprintf(`{"batch_size": 10, "world_size": 1, "nodes": 1%s}`, options)
	kind, body = p.ask(msgHello, fmt.Appendf(nil, `{"trainer": %d, "rank": 0, "timeout": 5, "options": {"path": %q, "loader": %s}}`,
		s.trainer.Process.Pid, s.path, loader))
	return p, kind, body
}

// join is a worker of a pass.
func (s *served) join(base uint64, worker, workers uint32) (p *peer, epoch uint64) {
	s.t.Helper()
	p, kind, body := s.begin(base, worker, workers, 0)
	if kind != msgBegan {
		s.t.Fatalf("BEGIN was answered by %d: %s", kind, body)
	}
	return p, binary.LittleEndian.Uint64(body)
}

// begin sends BEGIN for a worker of an iteration whose first worker was born as number `first`.
func (s *served) begin(base uint64, worker, workers uint32, first uint64) (p *peer, kind byte, body []byte) {
	s.t.Helper()
	p, kind, body = s.connect("")
	if kind != msgWelcome {
		s.t.Fatalf("HELLO was answered by %d: %s", kind, body)
	}
	request := binary.LittleEndian.AppendUint64(nil, base)
	request = binary.LittleEndian.AppendUint64(request, 0)
	request = binary.LittleEndian.AppendUint32(request, worker)
	request = binary.LittleEndian.AppendUint32(request, workers)
	for _, v := range []uint64{first + uint64(worker), 0, 0, 0, 0, ^uint64(0)} {
		request = binary.LittleEndian.AppendUint64(request, v)
	}
	kind, body = p.ask(msgBegin, request)
	return p, kind, body
}

func (p *peer) send(kind byte, body []byte) {
	p.t.Helper()
	if _, err := p.conn.Write(append([]byte{kind, 1, 0, 0, 9, 0, 0, 0}, body...)); err != nil {
		p.t.Fatal(err)
	}
}

// ask sends a request and returns the answer. A file that comes with it is mapped.
func (p *peer) ask(kind byte, body []byte) (byte, []byte) {
	p.t.Helper()
	p.send(kind, body)
	buf, oob := make([]byte, 64<<10), make([]byte, unix.CmsgSpace(4))
	_ = p.conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	n, oobn, _, _, err := p.conn.ReadMsgUnix(buf, oob)
	if err != nil {
		p.t.Fatal(err)
	}
	if messages, _ := unix.ParseSocketControlMessage(oob[:oobn]); len(messages) > 0 {
		fds, _ := unix.ParseUnixRights(&messages[0])
		size, _ := unix.Seek(fds[0], 0, unix.SEEK_END)
		if p.arena, err = unix.Mmap(fds[0], 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE); err != nil {
			p.t.Fatal(err)
		}
		if unix.Ftruncate(fds[0], 0) == nil {
			p.t.Error("a client can cut off the memory of batches")
		}
		unix.Close(fds[0])
	}
	return buf[0], buf[8:n]
}

// lent is a batch in this client's hands.
type lent struct {
	slot  []byte // slot and generation
	index []int64
	copy  bool
}

func (p *peer) next(number uint64) (lent, bool) {
	p.t.Helper()
	kind, body := p.ask(msgNext, binary.LittleEndian.AppendUint64(nil, number))
	if kind == msgEnded {
		return lent{}, false
	}
	if kind != msgBatch {
		p.t.Fatalf("NEXT was answered by %d: %s", kind, body)
	}
	return p.lent(body), true
}

// lent is the batch that a BATCH message gives.
func (p *peer) lent(body []byte) lent {
	n, place := binary.LittleEndian.Uint32(body[8:]), binary.LittleEndian.Uint64(body[40:])
	l := lent{slot: slices.Clone(body[:8]), copy: body[len(body)-8] == 1}
	for i := range uint64(n) {
		l.index = append(l.index, int64(binary.LittleEndian.Uint64(p.arena[place+8*i:])))
	}
	return l
}

func (p *peer) release(l lent, tickets int64) {
	p.send(msgRelease, binary.LittleEndian.AppendUint64(slices.Clone(l.slot), uint64(tickets)))
}

// reference is the order of an epoch's batches in one process.
func reference(t *testing.T, s *served, epoch int) (batches [][]int64) {
	t.Helper()
	d, err := redox.Open(s.path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	l := loader(t, d, `{"batch_size": 10, "world_size": 1, "nodes": 1, "epoch": %d}`, epoch)
	b := buffers(10)
	for batch := next(t, l, b); batch != nil; batch = next(t, l, b) {
		batches = append(batches, batch)
	}
	return batches
}
