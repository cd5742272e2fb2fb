package redox

// Batch is one rank's batch as columns in the caller's memory (see redox_batch in include/redox.h). The
// caller sets CapSamples and what it offers in Fields and Index; a call sets the rest. When something is too
// small, every Need is set, the error's kind is Range and nothing was consumed.
type Batch struct {
	Flags       uint32
	CapSamples  int
	N           int // samples in this batch
	Epoch, Step uint64
	Index       []int64 // stored numbers, or nil
	Fields      []Column
}

// Skipped is a flag of Batch: a sample of it stands in for a corrupt one.
const Skipped = 1

// Column is one field of a batch. Fixed-size fields are contiguous in Data. The others have Offsets too:
// sample i is Data[Offsets[i]:Offsets[i+1]].
type Column struct {
	Data     []byte // capacity offered by the caller
	Need     uint64 // bytes of Data that the batch needs
	Offsets  []uint64
	Shape    []uint64 // arrays of any shape: ShapeCap dimensions a sample, or nil
	NDim     int      // the largest number of dimensions in the batch
	ShapeCap int
	Valid    []byte // 1 byte a sample, 0 = missing; nil if not wanted
}

// Value is one field of one sample to be written.
type Value struct {
	Data    []byte
	Shape   []uint64 // arrays of any shape
	Missing bool
}
