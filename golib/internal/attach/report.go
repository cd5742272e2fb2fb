package attach

import (
	"encoding/json"
	"errors"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// report is a failure as it crosses the socket, with the names of redox_last_error_json.
type report struct {
	Status  int    `json:"status"`
	Message string `json:"message"`
	Path    string `json:"path,omitempty"`
	Errno   int    `json:"errno,omitempty"`
	Shard   *int64 `json:"shard,omitempty"`
	Chunk   *int64 `json:"chunk,omitempty"`
	Sample  *int64 `json:"sample,omitempty"`
	Needed  *int64 `json:"needed,omitempty"`
	Given   *int64 `json:"given,omitempty"`
	Window  *int64 `json:"window,omitempty"`
	Peer    string `json:"peer,omitempty"`
}

func encodeError(err error) []byte {
	r := report{Status: int(fault.Internal), Message: err.Error()}
	var e *fault.Error
	if errors.As(err, &e) {
		r.Status, r.Path, r.Errno, r.Peer = int(e.Kind), e.Path, int(e.Errno), e.Peer
		r.Shard, r.Chunk, r.Sample = known(e.Shard), known(e.Chunk), known(e.Sample)
		if e.Kind == fault.Memory {
			r.Needed, r.Given, r.Window = &e.Needed, &e.Given, &e.Window
		}
	}
	b, err := json.Marshal(r)
	if err != nil { // strings and numbers always fit
		panic(err)
	}
	return b
}

// known is nil for a number that does not apply.
func known(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}
