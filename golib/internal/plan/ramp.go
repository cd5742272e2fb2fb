package plan

import "math/bits"

// The virtual chunks of an epoch are numbered layer by layer: number i belongs to the partition whose turn is i mod
// partitions. They do not all open at once: the first batch would wait for the whole window, and the queues, all of the
// same length, would then refill in step, in bursts. But the ramp must be short, because while few virtual chunks are
// open the samples are badly mixed: half a chunk of rounds for each layer.

// ramp returns the round in which the virtual chunk of a number opens: the first window/8 at once, the others in steps
// of half the mean samples of a chunk divided by the partitions.
func (p *Plan) ramp(number int) int64 {
	atOnce := max(1, p.window/8)
	if number < atOnce {
		return 0
	}
	// (number - atOnce) * (size / chunks) / (2 * partitions), rounded down, exact: the product can exceed 64 bits.
	hi, lo := bits.Mul64(uint64(number-atOnce), uint64(p.size))
	round, _ := bits.Div64(hi, lo, 2*uint64(p.partitions)*uint64(p.chunks))
	return int64(round)
}

// slots returns how many virtual chunks the partition with a turn has: window div partitions, and the first
// window mod partitions of them one more.
func (p *Plan) slots(turn int) int {
	return (p.window - turn + p.partitions - 1) / p.partitions
}
