package buffer

import "testing"

// A limit beyond all memory is a way to say that there is none; it must not overflow into a small arena.
func TestHugeLimits(t *testing.T) {
	for _, limit := range []int64{1 << 30, 1 << 43, 1 << 57, 1<<62 - 1} {
		a, err := NewBudget(limit).NewArena("test", limit)
		if err != nil {
			t.Fatal(err)
		}
		if a.Size() < min(limit, 1<<36) {
			t.Errorf("limit %d: %d bytes of address space", limit, a.Size())
		}
		a.Close()
	}
}
