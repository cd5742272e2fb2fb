package attach

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// widen lets this process run on the processors of one more trainer. An engine inherits those of the process that
// happened to start it, a rank that may be pinned to a few, or a worker of it; but it works for all ranks of the node,
// so it may run where any of them may. mu is held.
func (s *Server) widen(trainer int) {
	var cpus unix.CPUSet
	if unix.SchedGetaffinity(trainer, &cpus) != nil {
		return // it has just ended, or may not be asked: the engine stays where it is
	}
	for i := range cpus {
		cpus[i] |= s.cpus[i]
	}
	if cpus == s.cpus {
		return
	}
	s.cpus = cpus
	// Twice: a thread that is born during the first round has what its parent had before.
	for range 2 {
		for _, thread := range threads() {
			_ = unix.SchedSetaffinity(thread, &cpus) // some end meanwhile
		}
	}
}

// threads are those of this process.
func threads() []int {
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil
	}
	var list []int
	for _, e := range entries {
		if id, err := strconv.Atoi(e.Name()); err == nil {
			list = append(list, id)
		}
	}
	return list
}
