package node

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestHoldAgainstAModel: whatever jobs, pusher and lane do in turn, a hold ends exactly once: with the last sample, or
// when it is ended or revoked and nothing is lent.
func TestHoldAgainstAModel(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		left, out := 1+rng.IntN(12), 0
		h := newHold(nil, uint32(left))
		ends, over := 0, false
		check := func(what string, got, want bool) {
			t.Helper()
			if got != want {
				t.Fatalf("seed %d: %s is %v with %d left, %d lent", seed, what, got, left, out)
			}
		}
		for step := 0; ends == 0 && step < 200; step++ {
			switch rng.IntN(8) {
			case 0, 1:
				if left > out && !over { // a job's own sample
					last, waiting := h.consume()
					left--
					check("last", last, left == 0)
					check("waiting", waiting, left > 0 && left == out)
					if last {
						ends++
					}
				}
			case 2, 3:
				if left > out && !over {
					ok, waiting := h.lend()
					out++
					check("lent", ok, true)
					check("waiting", waiting, left == out)
				}
			case 4, 5:
				if out > 0 {
					last := h.giveBack()
					left, out = left-1, out-1
					check("last", last, left == 0)
					if last {
						ends++
					}
				}
			case 6:
				if n, ok := h.revoke(); !over {
					check("revoked", ok, out == 0)
					if ok {
						if int(n) != left {
							t.Fatalf("seed %d: %d are left, want %d", seed, n, left)
						}
						ends++
						lent, _ := h.lend()
						check("lent after all", lent, false)
					}
				}
			case 7:
				if rng.IntN(10) == 0 && !over {
					last := h.end()
					over, left = true, out
					check("last", last, out == 0)
					if last {
						ends++
					}
				}
			}
		}
		for ; ends == 0 && out > 0 && over; out-- {
			left--
			if h.giveBack() {
				ends++
			}
			check("the end", ends == 1, left == 0)
		}
	}
}

// TestHoldUsedUp: between the last sample's being counted and its chunk's being given back, whoever else ends the hold
// leaves the chunk to that one.
func TestHoldUsedUp(t *testing.T) {
	for what, use := range map[string]func(*hold) bool{
		"consumed": func(h *hold) bool { last, _ := h.consume(); return last },
		"lent":     func(h *hold) bool { h.lend(); return h.giveBack() },
	} {
		h := newHold(nil, 1)
		if !use(h) {
			t.Fatalf("%s: not the last one", what)
		}
		if left, ok := h.revoke(); left != 0 || !ok {
			t.Errorf("%s: %d to be read again, %v", what, left, ok)
		}
		if h.end() {
			t.Errorf("%s: ended twice", what)
		}
	}
}

// TestPunctuality: probation lasts for 8 samples in time, then 16, at most 256; the hedge time follows the lateness.
func TestPunctuality(t *testing.T) {
	p := newPunctuality(2)
	if p.patience(0) != firstHedge || p.patience(time.Second) != mostHedge || p.patience(50*time.Millisecond) != 200*time.Millisecond {
		t.Errorf("at first: %v, %v, %v", p.patience(0), p.patience(time.Second), p.patience(50*time.Millisecond))
	}
	for _, need := range []int{8, 16, 32, 64, 128, 256, 256} {
		if !p.tooLate(1) || p.tooLate(1) || !p.onProbation(1) || p.onProbation(0) {
			t.Fatal("not on probation")
		}
		for range need - 1 {
			p.asked(1, true)
		}
		p.asked(1, false)
		for i := range need {
			if released := p.asked(1, true); released != (i == need-1) {
				t.Fatalf("released %v after %d in time, want %d", released, i+1, need)
			}
		}
	}
	for range 1000 {
		p.came(0)
	}
	if p.patience(0) != leastHedge {
		t.Errorf("all in time: %v", p.patience(0))
	}
	for i := range 2000 {
		p.came(time.Duration(i%50/49) * 6 * time.Millisecond) // 2 in 100
	}
	if got := p.patience(0); got < 24*time.Millisecond || got > 40*time.Millisecond {
		t.Errorf("2 in 100 are 6 ms late: %v", got)
	}
	for range 5000 {
		p.came(time.Second)
	}
	if p.patience(0) != firstHedge {
		t.Errorf("all late: %v", p.patience(0))
	}
	p.waited(300 * time.Millisecond)
	if p.patience(0) != 700*time.Millisecond {
		t.Errorf("storage is slow: %v", p.patience(0))
	}
	for range 40 {
		p.waited(0)
	}
	if p.patience(0) > firstHedge+time.Millisecond {
		t.Errorf("storage is quick again: %v", p.patience(0))
	}
}
