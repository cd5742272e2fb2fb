package fault_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// The numbers are part of the C ABI.
func TestKindsAreStatuses(t *testing.T) {
	want := map[fault.Kind]int{
		fault.EndOfEpoch: 1, fault.Invalid: -1, fault.BadHandle: -2, fault.Range: -3, fault.NotDataset: -4,
		fault.Format: -5, fault.Corrupt: -6, fault.IO: -7, fault.Memory: -8, fault.State: -9, fault.Peer: -10,
		fault.TimedOut: -11, fault.Canceled: -12, fault.Fork: -13, fault.Version: -14, fault.Internal: -15,
	}
	for kind, status := range want {
		if int(kind) != status {
			t.Errorf("kind %d, want status %d", kind, status)
		}
	}
}

func TestErrorsKeepKindAndErrno(t *testing.T) {
	err := fmt.Errorf("outer: %w", fault.Wrap(fault.IO, syscall.ENOSPC, "write shard 3").At(3, -1, -1))
	if !errors.Is(err, fault.Of(fault.IO)) || errors.Is(err, fault.Of(fault.Corrupt)) {
		t.Error("errors.Is must match the kind only")
	}
	if fault.KindOf(err) != fault.IO || fault.KindOf(errors.New("x")) != fault.Internal {
		t.Error("KindOf")
	}
	var e *fault.Error
	if !errors.As(err, &e) || e.Errno != syscall.ENOSPC || e.Shard != 3 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("lost something: %+v", e)
	}
}
