package resident

import "container/heap"

// farthest is a heap of cached chunks; the one that is used last is on top.
type farthest []*Chunk

func (h *farthest) push(c *Chunk)   { heap.Push((*chunkHeap)(h), c) }
func (h *farthest) remove(c *Chunk) { heap.Remove((*chunkHeap)(h), c.place) }

// chunkHeap keeps the methods that container/heap wants out of sight.
type chunkHeap []*Chunk

func (h chunkHeap) Len() int           { return len(h) }
func (h chunkHeap) Less(i, j int) bool { return h[i].next > h[j].next }
func (h chunkHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *chunkHeap) Push(x any) {
	c := x.(*Chunk)
	c.place = len(*h)
	*h = append(*h, c)
}

func (h *chunkHeap) Pop() any {
	old := *h
	c := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return c
}
