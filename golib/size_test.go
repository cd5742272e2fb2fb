package redox

import (
	"strings"
	"testing"
)

func TestSizes(t *testing.T) {
	for _, x := range []struct {
		value any
		want  int64
	}{
		{nil, 0}, {"auto", 0}, {float64(4096), 4096}, {"512kb", 512 << 10}, {"8MB", 8 << 20}, {"1.5gb", 3 << 29}, {" 2 k ", 2048},
		{"100", 100}, {"7b", 7}, {".5kb", 512}, {"1tb", 1 << 40},
	} {
		if got, err := sizeOf("memory_limit", x.value, 1); err != nil || got != x.want {
			t.Errorf("%v: %d, %v", x.value, got, err)
		}
	}
	for _, wrong := range []any{float64(0), float64(-1), 1.5, 1e19, "", "x", "-1kb", "1e3", "nan", "1kib", "AUTO", "0", "999999pb", true, []any{}} {
		_, err := sizeOf("memory_limit", wrong, 1)
		if err == nil || !strings.Contains(err.Error(), "memory_limit=") || !strings.Contains(err.Error(), `"1.5gb"`) {
			t.Errorf("%v: %v", wrong, err)
		}
	}
}
