package redox

import (
	"strings"
	"testing"
)

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

func TestCardsWithoutTerms(t *testing.T) {
	m := &Mesh{terms: terms{Dataset: "a", Seed: 1, Ranks: []int{1, 1}}}
	cards, err := m.read([]byte(`[{"node": 0, "address": "a:1"}, {"node": 1, "address": "b:1", "terms": {"dataset": "a", "seed": 1, "ranks": [1, 1]}}]`))
	if err != nil || len(cards) != 2 || cards[0].Address != "a:1" || cards[1].Node != 1 {
		t.Errorf("%v, %v", cards, err)
	}
	_, err = m.read([]byte(`[{"node": 0}, {"node": 1, "terms": {"dataset": "a", "seed": 2, "ranks": [1, 1]}}]`))
	if err == nil || !strings.Contains(err.Error(), "shuffle_seed=1 here differs from shuffle_seed=2 on node 1") {
		t.Error(err)
	}
}
