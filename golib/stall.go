package redox

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// stall tells once of each stall what a loader does meanwhile. Callers may wait in slices, so what counts is how long
// calls that began one after the other have brought nothing.
type stall struct {
	mu    sync.Mutex
	since time.Time // when the first of them began; zero: the latest call brought something
	told  bool
}

// over takes note of a call's end, and says whether nothing has come for as long as `timeout`, for the first time.
func (s *stall) over(begun time.Time, err error, timeout time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fault.KindOf(err) != fault.TimedOut {
		s.since, s.told = time.Time{}, false
		return false
	}
	if s.since.IsZero() {
		s.since = begun
	}
	// Slices add up to a little less than the time that their caller has.
	if s.told || time.Since(s.since) < timeout-timeout/10 {
		return false
	}
	s.told = true
	return true
}

// tell writes the loader's state into the log.
func (l *Loader) tell(err error) {
	look := l.run.Sight()
	lines := append([]string{fmt.Sprintf("%v; the state of the engine:", err)}, look.Lines()...)
	log.line("warning", strings.Join(lines, "\n"))
}
