package redox

import (
	"math"
	"strconv"
	"strings"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// world is one process's place among those that share an epoch.
type world struct {
	rank, size, nodes int
	ranks             []int // of each node, consecutive; their sum is size
}

// launchers are the variables in which launchers say rank and world size, the first that is set counts.
var launchers = [][2]string{
	{"RANK", "WORLD_SIZE"},
	{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
	{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
}

// world resolves the options, else the environment, else one rank. Without a word on nodes each rank is its own node:
// processes that use the C library do not share an engine.
func (o *planOptions) world() (world, error) {
	w := world{size: 1}
	switch {
	case o.WorldSize != nil:
		w.size = *o.WorldSize
		if o.Rank != nil {
			w.rank = *o.Rank
		} else if w.size > 1 {
			return w, fault.New(fault.Invalid, "world_size=%d was given without rank: expected both or neither", w.size)
		}
	case o.Rank != nil:
		return w, fault.New(fault.Invalid, "rank=%d was given without world_size: expected both or neither", *o.Rank)
	default:
		var err error
		if w.rank, w.size, err = fromEnvironment(Getenv); err != nil {
			return w, err
		}
	}
	switch {
	case w.size < 1 || w.size > 1<<20:
		return w, fault.New(fault.Invalid, "world_size=%d: expected 1 to %d", w.size, 1<<20)
	case w.rank < 0 || w.rank >= w.size:
		return w, fault.New(fault.Invalid, "rank=%d: expected 0 to world_size-1 = %d", w.rank, w.size-1)
	}
	var err error
	w.ranks, err = ranksOf(o.Nodes, w.size)
	w.nodes = len(w.ranks)
	return w, err
}

// node is the one that has this rank.
func (w world) node() int {
	before := 0
	for n, ranks := range w.ranks {
		if before += ranks; w.rank < before {
			return n
		}
	}
	return len(w.ranks) - 1
}

func fromEnvironment(getenv func(string) string) (rank, size int, err error) {
	for _, names := range launchers {
		text := strings.TrimSpace(getenv(names[1]))
		if text == "" {
			continue
		}
		if size, err = strconv.Atoi(text); err != nil {
			return 0, 0, fault.New(fault.Invalid, "the environment has %s=%q: expected a number", names[1], text)
		}
		text = strings.TrimSpace(getenv(names[0]))
		if text == "" && size > 1 {
			return 0, 0, fault.New(fault.Invalid, "the environment has %s=%d but no %s", names[1], size, names[0])
		}
		if text == "" {
			return 0, size, nil
		}
		if rank, err = strconv.Atoi(text); err != nil {
			return 0, 0, fault.New(fault.Invalid, "the environment has %s=%q: expected a number", names[0], text)
		}
		return rank, size, nil
	}
	return 0, 1, nil
}

// ranksOf is how many ranks each node has: what option nodes lists, or the ranks spread over so many nodes in consecutive
// runs, the first nodes one more where it does not divide. Without the option each rank is a node.
func ranksOf(nodes any, size int) ([]int, error) {
	count := size
	switch v := nodes.(type) {
	case nil:
	case float64:
		if v != math.Trunc(v) || v < 1 || v > float64(size) {
			return nil, fault.New(fault.Invalid, "nodes=%v: expected 1 to world_size = %d", v, size)
		}
		count = int(v)
	case []any:
		ranks, sum := make([]int, len(v)), 0
		for i, n := range v {
			f, _ := n.(float64)
			if f != math.Trunc(f) || f < 1 || f > float64(size) {
				return nil, fault.New(fault.Invalid, "nodes=%v: expected at least one rank on each node", v)
			}
			ranks[i] = int(f)
			sum += ranks[i]
		}
		if sum != size {
			return nil, fault.New(fault.Invalid, "nodes=%v are %d ranks: expected world_size = %d", v, sum, size)
		}
		return ranks, nil
	default:
		return nil, fault.New(fault.Invalid, "nodes=%v: expected a number, or how many ranks each node has", v)
	}
	ranks := make([]int, count)
	for i := range ranks {
		ranks[i] = size / count
		if i < size%count {
			ranks[i]++
		}
	}
	return ranks, nil
}
