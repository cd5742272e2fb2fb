package node

import (
	"bytes"
	"strconv"
	"time"

	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/fault"
)

// Find returns the stored number of the first sample with a key. There is no index of keys: it looks through the
// tables of all chunks, some of them on their way at once. timeout is for each of them.
func (r *Reader) Find(key string, timeout time.Duration) (number int64, found bool, err error) {
	for c := range r.index.Entries {
		for ahead := c + 1; ahead < min(c+defaultReaders, len(r.index.Entries)); ahead++ {
			r.table(uint32(ahead))
		}
		pat := &patience{limit: timeout}
		t, err := r.Table(uint32(c), pat)
		pat.done()
		if err == errTimeout {
			return 0, false, fault.New(fault.TimedOut, "the table of chunk %d did not come in time", c)
		}
		if err != nil {
			return 0, false, err
		}
		if i := findKey(t, key); i >= 0 {
			return int64(r.index.Entries[c].First) + int64(i), true, nil
		}
	}
	return 0, false, nil
}

// findKey looks through one table without making strings. A sample without a key has its source number for one.
func findKey(t *chunk.Table, key string) int {
	number, err := strconv.ParseUint(key, 10, 64)
	decimal := err == nil && strconv.FormatUint(number, 10) == key
	for i := range t.Len() {
		switch own := t.KeyBytes(i); {
		case len(own) > 0 && bytes.Equal(own, []byte(key)):
			return i
		case len(own) == 0 && decimal && t.Source(i) == number:
			return i
		}
	}
	return -1
}
