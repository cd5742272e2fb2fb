// Package pack makes data sets: it takes samples one by one (Writer) or reads a tree of files (Tree), permutes them
// without holding them in memory, cuts them into chunks, compresses and checksums in parallel, and publishes the
// result at once. It also reads a data set through and says what is damaged (Verify).
//
// It is for golib's writer and jobs. It knows nothing of Python's sources, nor of how a data set is loaded.
//
// The life of a packed sample: Write → spill (a bucket of the shuffle, on disk) → sorted by a seeded key → Builder
// (one chunk in memory) → encoded by a worker → appended to a shard in order → shard synced and noted in the journal
// → index and manifest written when all are there. Every step can be cut off by a kill: the next run reads the
// journal, throws away what it doesn't mention, and goes on; the result has the same bytes.
package pack
