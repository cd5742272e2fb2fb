package pack

import (
	"encoding/binary"
	"strconv"

	"github.com/redox-loader/redox/golib/internal/chunk"
)

// maxLabels is how many different labels are counted. A field with more is a number, not a class.
const maxLabels = 1 << 16

// labelCounts is what the mixing score needs to know of some chunks: samples by label, and of the pairs of samples
// that share a chunk, how many share a label.
type labelCounts struct {
	Counts map[int64]uint64 `json:"counts,omitempty"`
	Same   uint64           `json:"same"`
	Pairs  uint64           `json:"pairs"`
	Many   bool             `json:"many,omitempty"` // too many labels: all else is void
}

// countLabels counts one chunk of n samples.
func countLabels(n int, label func(i int) int64) (l labelCounts) {
	l.Counts = make(map[int64]uint64)
	for i := range n {
		l.Counts[label(i)]++
		if len(l.Counts) > maxLabels {
			return labelCounts{Many: true}
		}
	}
	for _, n := range l.Counts {
		l.Same += n * (n - 1) / 2
	}
	l.Pairs = uint64(n) * uint64(n-1) / 2
	return l
}

// labelAt is where every body has its label; -1 if the schema has none.
func labelAt(s chunk.Schema, l *chunk.Layout) int {
	f := s.LabelField()
	if f < 0 || s.Fields[f].Nullable {
		return -1
	}
	at, _, _ := l.Fixed(f)
	return at
}

func labelIn(body []byte, at int) int64 { return int64(binary.LittleEndian.Uint64(body[at:])) }

// add takes other chunks in.
func (l *labelCounts) add(o labelCounts) {
	if l.Many = l.Many || o.Many; l.Many {
		*l = labelCounts{Many: true}
		return
	}
	if l.Counts == nil {
		l.Counts = make(map[int64]uint64, len(o.Counts))
	}
	for label, n := range o.Counts {
		l.Counts[label] += n
	}
	l.Same += o.Same
	l.Pairs += o.Pairs
	if len(l.Counts) > maxLabels {
		*l = labelCounts{Many: true}
	}
}

// byName is the counts for the manifest, nil if there are none or too many.
func (l *labelCounts) byName() map[string]uint64 {
	if len(l.Counts) == 0 {
		return nil
	}
	counts := make(map[string]uint64, len(l.Counts))
	for label, n := range l.Counts {
		counts[strconv.FormatInt(label, 10)] = n
	}
	return counts
}

// rho is the mean correlation of labels inside chunks: by how much likelier two samples of one chunk share a label
// than two of the whole data set, scaled so that shuffled data has 0 and chunks of one label each have 1. As chance
// can make it a little negative, so can small shuffled data sets. nil if it is not defined.
func (l *labelCounts) rho() *float64 {
	var n, same float64
	for _, c := range l.Counts {
		n += float64(c)
		same += float64(c) * float64(c-1)
	}
	if l.Pairs == 0 || n < 2 {
		return nil
	}
	all := same / (n * (n - 1))
	if all >= 1 {
		return nil // one label only: nothing to correlate
	}
	rho := (float64(l.Same)/float64(l.Pairs) - all) / (1 - all)
	return &rho
}
