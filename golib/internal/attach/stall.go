package attach

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// stalled says of a pass for which nothing came in time which engine that is, and writes the engine's state into the
// log, once until something comes.
func (p *pass) stalled(err error) error {
	s := p.server
	s.mu.Lock()
	first, ld := !p.dumped, p.loader
	p.dumped = true
	lines := s.dump()
	s.mu.Unlock()
	var f *fault.Error
	if errors.As(err, &f) {
		named := *f
		named.Message = fmt.Sprintf("engine process %d, rank %d: %s", os.Getpid(), p.rank.number, f.Message)
		err = &named
	}
	if first && ld != nil {
		look := ld.Sight()
		lines = append(append([]string{err.Error() + "; the state of the engine:"}, look.Lines()...), lines...)
		s.Log("warning", strings.Join(lines, "\n"))
	}
	return err
}

// dump says for a log what the passes and slots of all ranks are doing. mu is held.
func (s *Server) dump() []string {
	var lines []string
	for _, v := range s.views() {
		line := fmt.Sprintf("trainer %d, rank %d: %d passes began, the latest over epoch %d", v.Trainer, v.Rank, v.Passes, v.Epoch)
		if v.Waits != "" {
			line += "; it waits for " + v.Waits
		}
		lines = append(lines, line)
		for _, w := range v.Workers {
			line := fmt.Sprintf("  worker %d (pid %d) is busy", w.Worker, w.Pid)
			if w.Batch != nil {
				line = fmt.Sprintf("  worker %d (pid %d) has waited %.1f s for its batch %d", w.Worker, w.Pid, w.Seconds, *w.Batch)
			}
			lines = append(lines, line)
		}
	}
	for _, l := range s.loans.all {
		if l == nil || l.slot == nil {
			continue
		}
		lines = append(lines, fmt.Sprintf("slot %d: batch %d of epoch %d, %s", l.id, l.batch.Step, l.batch.Epoch, l.whereabouts()))
	}
	return lines
}

// whereabouts says who has a batch. mu is held.
func (l *loan) whereabouts() string {
	if len(l.holders) == 0 {
		if l.pass.ready[l.number] == l {
			return "waits for its worker"
		}
		return "on its way between processes"
	}
	pids := make([]int, len(l.holders))
	for i, c := range l.holders {
		pids[i] = c.pid
	}
	slices.Sort(pids)
	return fmt.Sprintf("with processes %v", slices.Compact(pids))
}
