// Package fault has the one error type that crosses the C boundary. Every package of the core returns it
// for what a user can meet; the kinds are those of redox_status and of the Python exception classes.
package fault

import (
	"errors"
	"fmt"
	"syscall"
)

// Kind says what went wrong, one for each redox_status.
type Kind int

// The kinds; their numbers are redox_status of include/redox.h.
const (
	EndOfEpoch Kind = 1
	Invalid    Kind = -1 - iota + 1
	BadHandle
	Range
	NotDataset
	Format
	Corrupt
	IO
	Memory
	State
	Peer
	TimedOut
	Canceled
	Fork
	Version
	Internal
)

// Error is a failure with what a user needs to act on it. Chunk, Shard and Sample are -1 where they do not apply.
type Error struct {
	Kind    Kind
	Message string
	Path    string        // file or data set
	Errno   syscall.Errno // the system's word on it, 0 if none
	Shard   int64
	Chunk   int64
	Sample  int64 // stored number
	Needed  int64 // bytes (Memory)
	Given   int64 // bytes (Memory)
	Window  int64 // the largest window that fits (Memory)
	Peer    string
	Err     error // the cause, or nil
}

// New returns an error of a kind; the message alone must say everything.
func New(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...), Shard: -1, Chunk: -1, Sample: -1}
}

// Wrap returns an error of a kind that keeps its cause and the cause's errno.
func Wrap(kind Kind, err error, format string, args ...any) *Error {
	e := New(kind, format, args...)
	e.Err = err
	errors.As(err, &e.Errno)
	return e
}

// At says where in the data set it happened; -1 for what is not known.
func (e *Error) At(shard, chunk, sample int64) *Error {
	e.Shard, e.Chunk, e.Sample = shard, chunk, sample
	return e
}

// In says which file or data set it is about.
func (e *Error) In(path string) *Error {
	e.Path = path
	return e
}

func (e *Error) Error() string {
	if e.Err == nil {
		return e.Message
	}
	return e.Message + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Is makes errors.Is match any error of the same kind: errors.Is(err, fault.Of(fault.Corrupt)).
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Message == "" && t.Kind == e.Kind
}

// Of is a target for errors.Is.
func Of(kind Kind) error { return &Error{Kind: kind} }

// KindOf returns the kind of the first Error in the chain, or Internal.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Internal
}
