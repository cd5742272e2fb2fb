package plan

// The mixing score is the variance inflation factor, VIF: how much more the label mean of a batch varies than it would
// if the epoch were shuffled in full. 1 is a full shuffle; 2 means that batches of B are worth shuffled ones of B/2 to
// whoever estimates the gradient from them. docs/plan.md tells what it was found to cost in training.

// VIF measures a delivered order: labels[i] is the label, or the chunk, of the sample at position i, cut into batches.
// Labels should be small numbers: memory is 12 bytes for each up to the largest. Positions after the last whole batch
// count for the label shares only. An order with one label, or with one batch, has nothing to vary: 1.
func VIF(labels []uint32, batch int) float64 {
	if batch < 1 || len(labels) <= batch {
		return 1
	}
	largest := uint32(0)
	for _, l := range labels {
		largest = max(largest, l)
	}
	counts := make([]uint32, int(largest)+1)
	for _, l := range labels {
		counts[l]++
	}
	m := newMeter(counts, int64(len(labels)))
	for ; len(labels) >= batch; labels = labels[batch:] {
		for _, l := range labels[:batch] {
			m.note(l)
		}
		m.end()
	}
	return m.vif()
}

// PredictVIF is the VIF of a batch drawn from a window of open chunks, where rho is the correlation of the labels inside
// a chunk: 0 if the samples were shuffled when packing, 1 if each chunk has a label of its own.
func PredictVIF(rho float64, batch, window, chunks int) float64 {
	if batch < 1 || window < 1 || chunks <= window {
		return 1
	}
	return 1 + rho*float64(batch-1)*(1/float64(window)-1/float64(chunks))
}

// meter accumulates the VIF of batches of one size.
type meter struct {
	shares  []float64 // of each label, in the whole epoch
	squares float64   // sum of their squares
	samples float64   // of the epoch
	counts  []uint32  // of each label, in the current batch
	seen    []uint32  // labels of the current batch
	size    int       // of the last batch
	sum     float64   // over the batches: squared distance of the batch's shares from the epoch's
	batches float64
}

func newMeter(counts []uint32, samples int64) *meter {
	m := &meter{shares: make([]float64, len(counts)), counts: make([]uint32, len(counts)), samples: float64(samples)}
	for l, n := range counts {
		m.shares[l] = float64(n) / m.samples
		m.squares += m.shares[l] * m.shares[l]
	}
	return m
}

// note adds a sample to the current batch.
func (m *meter) note(label uint32) { m.seen = append(m.seen, label) }

// end closes the current batch: sum of (n/B - p)² over all labels, spelled out so that only the batch's own cost time.
func (m *meter) end() {
	var squares uint64 // sum of n²
	var cross float64  // sum of n*p
	for _, l := range m.seen {
		squares += 2*uint64(m.counts[l]) + 1 // (n+1)² - n²
		m.counts[l]++
		cross += m.shares[l]
	}
	for _, l := range m.seen {
		m.counts[l] = 0
	}
	m.size = len(m.seen)
	b := float64(m.size)
	m.sum += float64(squares)/(b*b) - 2*cross/b + m.squares
	m.batches++
	m.seen = m.seen[:0]
}

// vif compares the mean of the batches with that of a full shuffle, which draws them without replacement.
func (m *meter) vif() float64 {
	b := float64(m.size)
	shuffled := (1 - m.squares) / b * (m.samples - b) / (m.samples - 1)
	if m.batches == 0 || !(shuffled > 0) {
		return 1
	}
	return m.sum / m.batches / shuffled
}
