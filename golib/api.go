package redox

import (
	"github.com/redox-loader/redox/golib/internal/chunk"
	"github.com/redox-loader/redox/golib/internal/node"
)

// Batch is one rank's batch as columns in the caller's memory (see redox_batch in include/redox.h). The caller sets
// CapSamples and what it offers in Fields and Index; a call sets the rest. When something is too small, every Need is
// set, the error's kind is Range and nothing was consumed.
type Batch = node.Batch

// Column is one field of a batch.
type Column = node.Column

// Value is one field of one sample to be written.
type Value = chunk.Value

// Skipped is a flag of Batch: a sample of it stands in for a corrupt one.
const Skipped = node.Skipped
