package plan

// turnHeap keeps one thing or none for each turn, the one with the smallest key first; of equal keys, the one whose
// turn comes first. Only its top is ever changed, which needs no more than sink.
type turnHeap[T any] []turnItem[T]

type turnItem[T any] struct {
	key   int64
	turn  uint16
	value T
}

func (a *turnItem[T]) before(b *turnItem[T]) bool {
	return a.key < b.key || a.key == b.key && a.turn < b.turn
}

// sink puts the item at i, which may have grown, where it belongs.
func (h turnHeap[T]) sink(i int) {
	item := h[i]
	for {
		child := 2*i + 1
		if child+1 < len(h) && h[child+1].before(&h[child]) {
			child++
		}
		if child >= len(h) || !h[child].before(&item) {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = item
}

// order makes a heap of items in any order.
func (h turnHeap[T]) order() {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.sink(i)
	}
}

// drop removes the top.
func (h *turnHeap[T]) drop() {
	end := len(*h) - 1
	(*h)[0] = (*h)[end]
	if *h = (*h)[:end]; end > 0 {
		h.sink(0)
	}
}
