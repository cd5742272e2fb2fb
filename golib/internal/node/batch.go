package node

import "unsafe"

// Batch is one batch of a rank, as columns: what the caller offers, and after a call what is in it.
type Batch struct {
	Flags       uint32
	CapSamples  int // room, in samples
	N           int // samples in this batch
	Epoch, Step uint64
	Index       []int64 // stored numbers, or nil; -1 - i marks padding under plan.PadMark
	Fields      []Column
}

// Skipped is a flag of Batch: a sample of it stands in for a corrupt one.
const Skipped = 1

// Column is one field of a batch. Fixed-size fields are contiguous in Data. The others have Offsets too:
// sample i is Data[Offsets[i]:Offsets[i+1]].
type Column struct {
	Data     []byte // memory offered; Need bytes of it hold the batch
	Need     uint64
	Offsets  []uint64 // CapSamples + 1
	Shape    []uint64 // arrays of any shape: ShapeCap dimensions a sample, or nil; unused ones are 2^64-1
	NDim     int      // the largest number of dimensions in the batch
	ShapeCap int
	Valid    []byte // 1 byte a sample, 0 = missing; nil if not wanted
	// Parts is where each sample goes, instead of into Data: memory of as many bytes as Offsets says; or nil.
	Parts []unsafe.Pointer
}

// noDim fills the dimensions that an array lacks.
const noDim = ^uint64(0)
