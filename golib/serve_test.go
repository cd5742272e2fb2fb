package redox_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	redox "github.com/redox-loader/redox/golib"
	"github.com/redox-loader/redox/golib/internal/fault"
)

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

func TestServeOfOtherSockets(t *testing.T) {
	for _, c := range []struct {
		kind  int
		words string
	}{{unix.SOCK_SEQPACKET, "does not listen"}, {unix.SOCK_STREAM, "SOCK_SEQPACKET"}} {
		socket, err := unix.Socket(unix.AF_UNIX, c.kind|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := redox.Serve(socket, nil); !errors.Is(err, fault.Of(fault.Invalid)) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%v", err)
		}
	}
}
