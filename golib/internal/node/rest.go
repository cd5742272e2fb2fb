package node

import "time"

// restStep is how often Rest looks.
const restStep = 5 * time.Millisecond

// Rest waits until what other nodes may still want of an epoch that was delivered whole has been sent, for a program that
// is about to end: slower nodes would have to read it from storage. False if that takes longer. In the middle of an epoch
// there is nothing to wait for.
func (r *Run) Rest(timeout time.Duration) bool {
	deadline := time.Now().Add(timeout)
	for r.owes() {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(restStep)
	}
	return true
}

func (r *Run) owes() bool {
	r.mu.Lock()
	p := r.pass
	over := p != nil && p.ended && len(p.queue) == 0 && !r.closed
	r.mu.Unlock()
	return r.lingering.Load() != nil || over && p.push != nil && !p.push.finished()
}
