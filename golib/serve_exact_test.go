package redox_test

import (
	"encoding/binary"
	"encoding/json"
	"slices"
	"sync"
	"testing"
)

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
