package main

/*
#cgo CFLAGS: -I${SRCDIR}/../include -Wall -Wextra -Wconversion
#include "shim.h"
*/
import "C"

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"unsafe"

	redox "github.com/redox-loader/redox/golib"
)

// mistake is a failure that this package finds itself: a NULL, a stale handle, a buffer that is too small.
type mistake struct {
	status  C.redox_status
	message string
}

func (m *mistake) Error() string { return m.message }

func invalid(format string, args ...any) error {
	return &mistake{C.REDOX_EINVAL, fmt.Sprintf(format, args...)}
}

func tooSmall(format string, args ...any) error {
	return &mistake{C.REDOX_ERANGE, fmt.Sprintf(format, args...)}
}

// errRunning is not a failure but the word of a wait that ended before the job did.
var errRunning = &mistake{C.REDOX_ETIMEDOUT, "still running"}

// panicked is a bug of ours that reached the boundary.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("internal error: %v", p.value) }

// call runs the body of one entry point and turns what comes out of it, a panic too, into a status and this
// thread's last error.
func call(name string, body func() error) (status C.redox_status) {
	defer func() {
		if v := recover(); v != nil {
			status = fail(name, &panicked{v, debug.Stack()})
		}
	}()
	if err := body(); err != nil {
		return fail(name, err)
	}
	return C.REDOX_OK
}

// with is call for an entry point that works on a handle.
func with[T any](name string, t *table[T], h uint64, body func(T) error) C.redox_status {
	return call(name, func() error {
		v, ok := t.get(h)
		if !ok {
			return stale(h)
		}
		defer t.put(h)
		return body(v)
	})
}

func stale(h uint64) error {
	return &mistake{C.REDOX_EBADF, fmt.Sprintf("handle %#x is stale, closed or unknown", h)}
}

// report is the JSON of redox_last_error_json. Pointers: 0 says something, absence says it does not apply.
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
	Stack   string `json:"stack,omitempty"`
}

// fail keeps an error for redox_last_error and returns its status. The end of an epoch and a job that still runs are
// statuses but no failures and leave the last one in place.
func fail(name string, err error) C.redox_status {
	r := describe(name, err)
	if r.Status == int(C.REDOX_END_OF_EPOCH) || err == error(errRunning) {
		return C.redox_status(r.Status)
	}
	text, jsonErr := json.Marshal(r)
	if jsonErr != nil { // strings and numbers always marshal
		panic(jsonErr)
	}
	words := []byte(r.Message)
	C.redox_shim_fail((*C.char)(unsafe.Pointer(unsafe.SliceData(words))), C.size_t(len(words)),
		(*C.char)(unsafe.Pointer(unsafe.SliceData(text))), C.size_t(len(text)))
	return C.redox_status(r.Status)
}

// describe finds in an error what a caller can act on. Only what is about the call itself names the function: the
// rest reaches Python users, who have not called it.
func describe(name string, err error) report {
	r := report{Status: int(C.REDOX_EINTERNAL), Message: err.Error()}
	var (
		m *mistake
		p *panicked
		e *redox.Error
	)
	switch {
	case errors.As(err, &m):
		r.Status, r.Message = int(m.status), name+": "+r.Message
	case errors.As(err, &p):
		r.Message, r.Stack = name+": "+r.Message, string(p.stack)
	case errors.As(err, &e):
		r.Status, r.Path, r.Errno, r.Peer = int(e.Kind), e.Path, int(e.Errno), e.Peer
		r.Shard, r.Chunk, r.Sample = known(e.Shard), known(e.Chunk), known(e.Sample)
		if r.Status == int(C.REDOX_EMEMORY) {
			r.Needed, r.Given, r.Window = &e.Needed, &e.Given, &e.Window
		}
	}
	return r
}

// known is nil for a number that does not apply.
func known(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}
