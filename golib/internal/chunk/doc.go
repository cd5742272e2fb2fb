// Package chunk is the format on disk: schema and fields, the bytes of one sample, chunks, shard headers, the chunk
// index and the manifest. docs/format.md says the same to people who write a reader of their own.
//
// It is for the packages that write data sets (pack) and those that read them (store, resident, node). It works on
// bytes in memory and does no I/O: whoever has a chunk in memory calls Parse and then asks the View for samples,
// without an allocation or a decoding step per look-up. Only this package knows lz4.
//
// Everything here that reads bytes treats them as hostile: a wrong checksum, an impossible size or an inconsistent
// table is a *fault.Error (Corrupt, Format or Version), never a panic, a wrong sample or an allocation larger than
// a fixed multiple of the input.
package chunk
