package store

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// FreeMemory is how many bytes this process could still use, page cache that can be dropped included: the smaller of
// the machine's available memory and what its control groups leave. It is a guess for choosing defaults.
func FreeMemory() int64 {
	free := machineFree("/proc/meminfo")
	return min(free, cgroupFree("/proc/self/cgroup", "/sys/fs/cgroup"))
}

func machineFree(path string) int64 {
	data, err := os.ReadFile(path)
	if err != nil {
		return math.MaxInt64
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		if rest, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			if kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64); err == nil {
				return kb << 10
			}
		}
	}
	return math.MaxInt64
}

// cgroupFree walks from this process's group to the root: an ancestor may be tighter. Both versions are understood.
func cgroupFree(self, root string) int64 {
	data, err := os.ReadFile(self)
	if err != nil {
		return math.MaxInt64
	}
	free := int64(math.MaxInt64)
	for line := range strings.SplitSeq(strings.TrimSpace(string(data)), "\n") {
		parts := strings.SplitN(line, ":", 3)
		if len(parts) != 3 {
			continue
		}
		base, limit, usage := root, "memory.max", "memory.current"
		if parts[1] != "" {
			if !strings.Contains(","+parts[1]+",", ",memory,") {
				continue
			}
			base, limit, usage = filepath.Join(root, "memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"
		}
		for dir := filepath.Clean("/" + parts[2]); ; dir = filepath.Dir(dir) {
			free = min(free, groupFree(filepath.Join(base, dir), limit, usage))
			if dir == "/" {
				break
			}
		}
	}
	return free
}

func groupFree(dir, limit, usage string) int64 {
	most, ok := readNumber(filepath.Join(dir, limit))
	if !ok || most > 1<<60 { // version 1 says "no limit" by a huge number
		return math.MaxInt64
	}
	used, _ := readNumber(filepath.Join(dir, usage))
	// Cached file pages count as used, but make room when needed.
	return max(0, most-used+cachedPages(filepath.Join(dir, "memory.stat")))
}

func readNumber(path string) (int64, bool) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(data)), 10, 64)
	return n, err == nil
}

func cachedPages(path string) int64 {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	sum := int64(0)
	for line := range strings.SplitSeq(string(data), "\n") {
		for _, name := range []string{"inactive_file ", "active_file "} {
			if rest, ok := strings.CutPrefix(line, name); ok {
				n, _ := strconv.ParseInt(rest, 10, 64)
				sum += n
			}
		}
	}
	return sum
}
