package redox

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

// logCapacity is how many lines wait for a reader. A library must not write to its host's stderr, and a callback into
// Python from a Go thread can hang when the interpreter exits; so whoever is interested polls.
const logCapacity = 1024

type logRing struct {
	mu      sync.Mutex
	lines   [][]byte // JSON objects, oldest first
	dropped int
}

var log logRing

// debugLog mirrors lines to stderr for C programs, which have no logging of their own.
var debugLog = os.Getenv("REDOX_LOG") == "stderr"

func (l *logRing) add(level, format string, args ...any) {
	line, err := json.Marshal(struct {
		Level   string `json:"level"`
		Message string `json:"message"`
	}{level, fmt.Sprintf(format, args...)})
	if err != nil {
		return // strings always fit
	}
	if debugLog {
		fmt.Fprintf(os.Stderr, "redox: %s: %s\n", level, fmt.Sprintf(format, args...))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) == logCapacity {
		l.lines = l.lines[1:]
		l.dropped++
	}
	l.lines = append(l.lines, line)
}

// line adds a line as it is.
func (l *logRing) line(level, message string) { l.add(level, "%s", message) }

// ReadLog takes the oldest log lines, as many as fit into limit bytes, one JSON object a line. A line that alone is
// longer than limit is dropped and counted, as are the oldest when nobody reads.
func ReadLog(limit int) []byte {
	log.mu.Lock()
	defer log.mu.Unlock()
	var out []byte
	if log.dropped > 0 {
		line := fmt.Appendf(nil, `{"level":"warning","message":"%d log lines were dropped"}`+"\n", log.dropped)
		if len(line) > limit {
			return nil
		}
		out, log.dropped = line, 0
	}
	for len(log.lines) > 0 {
		line := log.lines[0]
		if len(out)+len(line)+1 > limit {
			if len(out) > 0 {
				break
			}
			log.dropped++
		} else {
			out = append(append(out, line...), '\n')
		}
		log.lines = log.lines[1:]
	}
	return out
}
