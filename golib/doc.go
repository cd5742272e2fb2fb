// Package redox is the one Go door to the core of Redox, a training-data loader. capi puts a C face on it;
// nothing else imports it. Read this first, then docs/architecture.md.
//
// # Terms
//
// A data set is packed as samples in chunks (runs of samples that are read in one go) in shard files. An
// epoch delivers every sample once, in an order that the seed fixes beforehand: the plan. The plan keeps a
// window of chunks open and draws the next sample from them at random, so that each chunk is read once and
// the order is still well mixed. A global batch is the next world size x batch size positions of that order.
//
// # The life of one sample
//
//	plan      says which chunk is opened when, and which sample stands at which position (pure)
//	store     reads the chunk's bytes from its shard file, once, ahead of its deadline
//	buffer    owns the memory that it lands in: one arena with a hard budget
//	resident  checks its checksums, lends it, keeps it while somebody will need it sooner than another
//	node      runs the plan for one rank: gathers and decodes a batch's samples into columns
//	redox     (here) options, data sets, loaders, states, statistics, writers, jobs
//	capi      the C entry points
//
// chunk is the format on disk and pack writes it; perm has the random numbers; fault the errors.
package redox
