package node

import "time"

const (
	restStep = 5 * time.Millisecond // how often Rest looks
	// restAlone is how long Rest waits for nodes that are not connected to come back; those that live try once a second.
	restAlone = 1500 * time.Millisecond
)

// Rest waits until what other nodes may still want of an epoch that was delivered whole has been sent, for a program that
// is about to end: slower nodes would have to read it from storage. False if that takes longer. In the middle of an epoch
// there is nothing to wait for, nor for nodes that have gone.
func (r *Run) Rest(timeout time.Duration) bool {
	deadline := time.Now().Add(timeout)
	for {
		owes, connected := r.owes()
		if !owes || !connected && r.alone() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(restStep)
	}
}

// owes says whether other nodes may still want something, and whether those that do are connected, as far as it is known.
func (r *Run) owes() (owes, connected bool) {
	r.mu.Lock()
	p := r.pass
	over := p != nil && p.ended && len(p.queue) == 0 && !r.closed
	r.mu.Unlock()
	if !over {
		p = nil
	}
	for _, p := range []*pass{r.lingering.Load(), p} {
		if p != nil && p.push != nil && !p.push.finished() {
			owes = true
			connected = connected || !p.push.walked.Load() || p.push.lane.Owes()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if connected {
		r.deserted = time.Time{}
	} else if r.deserted.IsZero() {
		r.deserted = time.Now()
	}
	return owes, connected
}

// alone says that nodes which may want something have not been connected for a while.
func (r *Run) alone() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.deserted.IsZero() && time.Since(r.deserted) >= restAlone
}
