package node

import (
	"errors"
	"time"
)

// What ends a wait before what was waited for has come.
var (
	errStopped  = errors.New("the pass has ended")
	errTimeout  = errors.New("the time is up")
	errCanceled = errors.New("canceled")
)

// patience bounds the waits of one call or worker. Nil waits for ever.
type patience struct {
	stop   <-chan struct{} // the pass ends
	cancel <-chan struct{} // Run.Cancel was called
	limit  time.Duration   // of all waits together; < 0: none
	timer  *time.Timer     // made at the first wait: most calls never wait
}

// wait waits for ch. It looks at ch first, so that a limit of 0 asks without waiting.
func (p *patience) wait(ch <-chan struct{}) error {
	if p == nil {
		<-ch
		return nil
	}
	return p.either(ch, nil, nil)
}

// either waits for one of these, as wait does; what is nil never comes.
func (p *patience) either(ch, other <-chan struct{}, timer <-chan time.Time) error {
	select {
	case <-ch:
		return nil
	case <-other:
		return nil
	default:
	}
	var expired <-chan time.Time
	if p.limit >= 0 {
		if p.timer == nil {
			p.timer = time.NewTimer(p.limit)
		}
		expired = p.timer.C
	}
	select {
	case <-ch:
		return nil
	case <-other:
		return nil
	case <-timer:
		return nil
	case <-p.stop:
		return errStopped
	case <-p.cancel:
		return errCanceled
	case <-expired:
		p.timer.Reset(0) // the next wait of this call shall end as well
		return errTimeout
	}
}

func (p *patience) done() {
	if p.timer != nil {
		p.timer.Stop()
	}
}
