package attach

import "time"

// logReader is who takes the lines of the log: one trainer, so that each line is said once. Its own process is preferred
// to its workers, whose loggers often lead nowhere, as long as it asks. Guarded by server.mu.
type logReader struct {
	trainer *trainer
	asked   time.Time // by the trainer's own process, or when it became the reader
}

// silence is how long the trainer's own process need not have asked for its workers to get the lines. A trainer asks
// when it takes in batches.
const silence = 3 * time.Second

// lines answers LINES; urgent comes from a process that is about to raise an error.
func (c *client) lines(urgent bool) answer {
	s := c.server
	s.mu.Lock()
	r := &s.reader
	if r.trainer == nil || r.trainer.gone {
		r.trainer, r.asked = c.trainer, time.Now() // its own process comes first, though a worker has asked before it
	}
	mine := r.trainer == c.trainer
	if mine && c.pid == c.trainer.pid {
		r.asked = time.Now()
	} else if mine && !urgent {
		mine = time.Since(r.asked) > silence
	}
	s.mu.Unlock()
	if !mine || s.Lines == nil {
		return answer{kind: text}
	}
	return answer{kind: text, body: s.Lines(maxMessage - headSize)}
}
