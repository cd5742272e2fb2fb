package redox_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
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

func TestServedWorkersGetTheOrder(t *testing.T) {
	const workers = 3
	s := serve(t)
	for epoch := range 3 {
		want := reference(t, s, epoch)
		var wg sync.WaitGroup
		for w := range workers {
			p, got := s.join(uint64(100+epoch), uint32(w), workers)
			if got != uint64(epoch) {
				t.Errorf("worker %d of the pass number %d is in epoch %d", w, epoch, got)
			}
			wg.Go(func() {
				number := w
				for ; ; number += workers {
					l, ok := p.next(uint64(number))
					if !ok {
						break
					}
					if number >= len(want) || !slices.Equal(l.index, want[number]) {
						t.Errorf("worker %d has something else for batch %d of epoch %d", w, number, epoch)
					}
					p.release(l, 0)
				}
				if number < len(want) {
					t.Errorf("worker %d got the end in the place of batch %d", w, number)
				}
			})
		}
		wg.Wait()
	}
}

func TestServedBatchesAreClaimedOnce(t *testing.T) {
	s := serve(t)
	worker, _ := s.join(1, 0, 1)
	trainer, _, _ := s.connect("")
	l, _ := worker.next(0)
	worker.release(l, 1) // sent, and dropped here
	if kind, body := trainer.ask(msgClaim, l.slot); kind != msgClaimed {
		t.Fatalf("a sent batch can't be claimed: %s", body)
	}
	trainer.release(l, -1)
	// The answer to anything else comes after the release was handled.
	trainer.ask(msgSet, make([]byte, 40))
	if kind, body := trainer.ask(msgClaim, l.slot); kind != msgFailed || !strings.Contains(string(body), "too late") {
		t.Fatalf("a batch that was given back was claimed: %d %s", kind, body)
	}
	l2, _ := worker.next(1)
	if slices.Equal(l2.slot[:4], l.slot[:4]) && slices.Equal(l2.slot[4:], l.slot[4:]) {
		t.Fatal("a slot is used again with the same generation")
	}
}

func TestServedTrainerThatKeepsEverything(t *testing.T) {
	s := serve(t)
	worker, _ := s.join(1, 0, 1)
	trainer, _, _ := s.connect("")
	copies := 0
	for number := uint64(0); ; number++ {
		l, ok := worker.next(number)
		if !ok {
			break
		}
		worker.release(l, 1)
		kind, body := trainer.ask(msgClaim, l.slot)
		if kind != msgClaimed {
			t.Fatalf("CLAIM: %s", body)
		}
		if binary.LittleEndian.Uint64(body) == 1 { // it must be copied and given back
			copies++
			trainer.release(l, -1)
		}
	}
	if copies == 0 || copies > 30 {
		t.Fatalf("%d of 31 batches were to be copied", copies)
	}
}

func TestServedPassThatIsLeft(t *testing.T) {
	s := serve(t)
	for pass := range 5 {
		worker, epoch := s.join(uint64(pass), 0, 1)
		if epoch != uint64(pass) {
			t.Fatalf("pass %d is epoch %d", pass, epoch)
		}
		for number := range uint64(4) {
			l, ok := worker.next(number)
			if !ok {
				t.Fatal("the epoch is over after 4 batches")
			}
			worker.release(l, 1) // nobody will claim it
		}
		worker.send(msgLeave, nil)
		worker.ask(msgSet, make([]byte, 40))
	}
}

func TestServedWorkerThatComesTooLate(t *testing.T) {
	s := serve(t)
	first, _ := s.join(1, 0, 2)
	first.next(0)
	first.send(msgLeave, nil) // a break, before the second worker has begun
	first.ask(msgSet, make([]byte, 40))
	if _, kind, body := s.begin(1, 1, 2, 0); kind != msgFailed {
		t.Fatalf("a worker of an iteration that was left got %d: %v", kind, body)
	}
	for w := range uint32(2) { // the next iteration, with the same seed
		_, kind, body := s.begin(1, 1-w, 2, 2)
		if kind != msgBegan || binary.LittleEndian.Uint64(body) != 1 {
			t.Fatalf("the iteration after a break got %d: %v", kind, body)
		}
	}
}

func TestServedOptionsMustAgree(t *testing.T) {
	s := serve(t)
	s.connect(`, "shuffle_seed": 18446744073709551615`)
	_, kind, body := s.connect(`, "shuffle_seed": 18446744073709551614`)
	if kind != msgFailed || !strings.Contains(string(body), "shuffle_seed") {
		t.Fatalf("another seed was answered by %d: %s", kind, body)
	}
}

func TestServedNonsense(t *testing.T) {
	s := serve(t)
	p, _ := s.join(1, 0, 1)
	for kind := range 20 {
		switch kind {
		case msgRelease, 11, msgLeave:
			p.send(byte(kind), []byte{1, 2, 3})
		case 9, 10, msgCounts, msgWhoMeets: // bodies that are not looked at
			p.ask(byte(kind), []byte{1, 2, 3})
		default:
			if answer, body := p.ask(byte(kind), []byte{1, 2, 3}); answer != msgFailed {
				t.Errorf("message %d with nonsense was answered by %d: %s", kind, answer, body)
			}
		}
	}
	silent, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: s.name, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if _, err := silent.Write([]byte{1, 99, 0, 0, 0, 0, 0, 0}); err != nil { // of another version
		t.Fatal(err)
	}
	answer := make([]byte, 1024)
	n, err := silent.Read(answer)
	if err != nil || !strings.Contains(string(answer[:n]), "same release") {
		t.Fatalf("another version was answered by %q, %v", answer[:n], err)
	}
}

// reader is a client that reads samples by number.
func (s *served) reader(options string) *peer {
	s.t.Helper()
	p, kind, body := s.connect(options)
	if kind != msgWelcome {
		s.t.Fatalf("HELLO was answered by %d: %s", kind, body)
	}
	return p
}

func (p *peer) tryRead(workers uint32, numbers []int64) (kind byte, body []byte) {
	p.t.Helper()
	request := binary.LittleEndian.AppendUint32(nil, 0)
	request = binary.LittleEndian.AppendUint32(request, workers)
	for _, n := range numbers {
		request = binary.LittleEndian.AppendUint64(request, uint64(n))
	}
	return p.ask(msgRead, request)
}

func (p *peer) read(workers uint32, numbers []int64) lent {
	p.t.Helper()
	kind, body := p.tryRead(workers, numbers)
	if kind != msgBatch {
		p.t.Fatalf("READ was answered by %d: %s", kind, body)
	}
	if p.arena == nil {
		arena := slices.Clone(body[16:24])
		if kind, answer := p.ask(msgMemory, arena); kind != msgMapped {
			p.t.Fatalf("MEMORY was answered by %d: %s", kind, answer)
		}
	}
	return p.lent(body)
}

func TestServedExactly(t *testing.T) {
	s := serve(t)
	var wg sync.WaitGroup
	for w := range int64(3) {
		p := s.reader("")
		wg.Go(func() {
			for i := range int64(50) {
				numbers := []int64{(i * 7) % 300, (i*7 + 1) % 300, w, 299 - i}
				l := p.read(3, numbers)
				if !slices.Equal(l.index, numbers) {
					t.Errorf("asked for %v, got %v", numbers, l.index)
				}
				p.release(l, 0)
			}
		})
	}
	wg.Wait()
	p := s.reader("")
	for _, wrong := range [][]int64{nil, {-1}, {1 << 40}} {
		if kind, body := p.tryRead(1, wrong); kind != msgFailed {
			t.Errorf("READ of %v was answered by %d: %s", wrong, kind, body)
		}
	}
	kind, body := p.ask(msgCounts, nil)
	var counts struct{ Samples, Batches, Reads int64 }
	if err := json.Unmarshal(body, &counts); kind != msgText || err != nil || counts.Samples != 600 || counts.Batches != 150 || counts.Reads == 0 {
		t.Errorf("counts %+v: %s", counts, body)
	}
}

// TestServedExactlyBesidePasses: a connection that reads by number and one that iterates share the engine.
func TestServedExactlyBesidePasses(t *testing.T) {
	s := serve(t)
	want := reference(t, s, 0)
	p := s.reader("")
	p.read(1, []int64{5})
	worker, _ := s.join(1, 0, 1)
	for number := range uint64(len(want)) {
		l, ok := worker.next(number)
		if !ok || !slices.Equal(l.index, want[number]) {
			t.Fatalf("batch %d is another one", number)
		}
		worker.release(l, 0)
		p.release(p.read(1, want[number]), 0)
	}
}

// TestServedReaderThatIsGone: what it gave away and nobody took in does not stay in the way of others, and a claim that
// comes too late is told so.
func TestServedReaderThatIsGone(t *testing.T) {
	s := serve(t)
	const limit = `, "memory_limit": 65536`
	var last lent
	for range 200 {
		p := s.reader(limit)
		l := p.read(1, []int64{1, 2, 3})
		if l.copy {
			t.Fatal("there was no room by reference, though all who had some are gone")
		}
		p.release(l, 1)
		p.ask(msgSet, make([]byte, 40))
		p.conn.Close()
		last = l
	}
	trainer := s.reader(limit)
	if kind, body := trainer.ask(msgClaim, last.slot); kind != msgClaimed {
		t.Fatalf("the latest batch can't be claimed: %s", body)
	}
	for first := true; ; first = false { // a hoarding worker: it is told to copy, and never has to wait
		l := trainer.read(1, []int64{1, 2, 3})
		if l.copy {
			if first {
				t.Error("there was no room at all")
			}
			trainer.release(l, 0)
			break
		}
	}
	trainer.release(trainer.read(1, []int64{7, 8}), 0)
}

// TestServedPassWaitsForTheEndOfAnother: where memory is for one iteration only, the next one may begin before the engine
// has read that the first was left.
func TestServedPassWaitsForTheEndOfAnother(t *testing.T) {
	const key = 77
	begin := func(p *peer, base uint64) (byte, []byte) {
		request := binary.LittleEndian.AppendUint64(nil, base)
		request = append(request, make([]byte, 8)...)
		request = binary.LittleEndian.AppendUint32(request, 0)
		request = binary.LittleEndian.AppendUint32(request, 1)
		return p.ask(msgBegin, append(request, make([]byte, 48)...))
	}
	var needed struct{ Needed int64 }
	t.Run("needed", func(t *testing.T) {
		kind, body := begin(serve(t).reader(`, "memory_limit": 1`), key)
		if err := json.Unmarshal(body, &needed); kind != msgFailed || err != nil || needed.Needed == 0 {
			t.Fatalf("a limit of 1 byte: %d %s", kind, body)
		}
	})
	t.Run("waits", func(t *testing.T) {
		s := serve(t)
		limit := fmt.Sprintf(`, "memory_limit": %d`, needed.Needed*3/2)
		first, second, third := s.reader(limit), s.reader(limit), s.reader(limit)
		if kind, body := begin(first, key); kind != msgBegan {
			t.Fatalf("first: %d %s", kind, body)
		}
		if kind, body := begin(second, key+1); kind != msgFailed || !strings.Contains(string(body), "memory_limit") {
			t.Fatalf("two at once: %d %s", kind, body)
		}
		go func() {
			time.Sleep(50 * time.Millisecond)
			first.send(msgLeave, nil)
		}()
		if kind, body := begin(third, key+2); kind != msgBegan {
			t.Fatalf("after the first has left: %d %s", kind, body)
		}
	})
}
