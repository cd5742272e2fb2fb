package pack

import "time"

// Hasten makes checkpoints and the end of spilling come after few bytes, and chunks small.
func Hasten(bytes, straight uint64, largest int64) {
	checkpointBytes, checkpointTime, straightAfter, maxChunk = bytes, time.Hour, straight, largest
}

// Finished is the shards that the journal in a directory calls finished.
func Finished(dir string) map[string]bool {
	lines, _, _ := readJournal(dir + "/.redox-pack/journal")
	names := make(map[string]bool)
	for _, l := range lines {
		if l.Shard != nil {
			names[l.Shard.Shard.Name] = true
		}
	}
	return names
}
