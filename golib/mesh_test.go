package redox

import "testing"

func TestLimitForIsTheLeast(t *testing.T) {
	for _, nodes := range []int{2, 3, 8, 200} {
		for _, rest := range []int64{1, 100 << 10, 1 << 20, 10<<20 + 7, 100 << 20, 5 << 30} {
			limit := limitFor(nodes, rest)
			if left := limit - meshMemory(nodes, limit); left < rest {
				t.Errorf("%d nodes: a limit of %d leaves %d of the %d that are needed", nodes, limit, left, rest)
			}
			if less := limit - 16; less > 0 && less-meshMemory(nodes, less) >= rest {
				t.Errorf("%d nodes: %d would be enough for %d, not only %d", nodes, less, rest, limit)
			}
		}
	}
}
