package node

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redox-loader/redox/golib/internal/exchange"
	"github.com/redox-loader/redox/golib/internal/fault"
)

// receive returns an incoming sample: the copy that its owner sent, or one read from storage, whichever is there first.
// Storage is asked at once if the owner will not send it or is on probation, else when it is late.
func (a *assembler) receive(j *job, i int, tight bool) (stored, error) {
	in, o := a.pass.in, &j.ops[i]
	if o.refused || o.in < j.took || tight && uint64(o.in) >= in.credit {
		// No good; or given up before a failed try of this batch; or it can only come when this job, whose sizes are needed
		// first, has taken others.
		if tight && o.fetch < 0 && !o.refused && o.in >= j.took {
			return stored{}, errTight
		}
		return a.single(j, i)
	}
	w := wait{job: j, op: o, ordinal: j.ordinal + uint64(o.in)}
	defer w.end()
	var changed <-chan struct{}
	for {
		s, status, known := in.look(w.ordinal)
		if status != exchange.Here && changed == nil {
			changed = in.watch()
			continue
		}
		a.note(o, status, known)
		if status == exchange.Here {
			if out, ok := a.accept(o, s); ok {
				a.pass.run.countIncoming(o, w.late(), len(s.Data))
				return out, nil
			}
			o.refused = true
			return a.single(j, i)
		}
		if f := j.fetch(o); f != nil && isDone(f.done) {
			if out, err := a.instead(o, f, status); err != errLater {
				return out, err
			}
		}
		if err := a.awaitCopy(j, i, &w, changed, status, known); err != nil {
			return stored{}, err
		}
		changed = nil
	}
}

// wait is that of one job for one incoming sample.
type wait struct {
	job     *job
	op      *op
	ordinal uint64
	begin   time.Time // when it began, zero if nothing was waited for
	asked   time.Time // when the lane had been told of the sample
	timer   *time.Timer
}

func (w *wait) end() {
	if w.timer != nil {
		w.timer.Stop()
	}
	if !w.begin.IsZero() {
		w.job.lastPeer.Store(time.Now().UnixNano())
	}
}

func (w *wait) late() time.Duration {
	if w.begin.IsZero() {
		return 0
	}
	return time.Since(w.begin)
}

// awaitCopy waits for a change: the sample, its reading, or the time to begin that.
func (a *assembler) awaitCopy(j *job, i int, w *wait, changed <-chan struct{}, status exchange.Status, known bool) error {
	r, o := a.pass.run, w.op
	now := time.Now()
	if w.begin.IsZero() {
		w.begin = now
	}
	if known && w.asked.IsZero() {
		w.asked = now
	}
	f := j.fetch(o)
	patience := r.punctual.patience(r.eng.queue.Latency())
	if f == nil && !o.unread {
		late := known && now.Sub(w.asked) >= patience
		if late && r.punctual.tooLate(o.owner) {
			r.eng.log("warning", "node "+strconv.Itoa(int(o.owner))+" is late: until it sends samples in time again, its are read from storage")
		}
		if status == exchange.Lost || r.punctual.onProbation(o.owner) {
			j.looked = min(j.looked, i)
			a.lookAhead(j)
			f = a.start(j, o)
		}
	}
	var read <-chan struct{}
	var hedge <-chan time.Time
	switch {
	case o.unread: // it is waited for as long as it takes
	case f != nil:
		read = f.done
	case known:
		if left := max(0, patience-now.Sub(w.asked)); w.timer == nil {
			w.timer = time.NewTimer(left)
		} else {
			w.timer.Reset(left)
		}
		hedge = w.timer.C
	}
	if j.waits.Load() == nil {
		j.waits.Store(&waitFor{what: a.pass.whose(o), since: w.begin, peer: true})
	}
	if err := a.pat.either(changed, read, hedge); err != nil {
		if errors.Is(err, errTimeout) {
			j.lastPeer.Store(time.Now().UnixNano())
		}
		return err
	}
	j.waits.Store(nil)
	return nil
}

// note counts, once a sample, whether it was there when it was asked for.
func (a *assembler) note(o *op, status exchange.Status, known bool) {
	if o.asked {
		return
	}
	o.asked = true
	r := a.pass.run
	r.counts.incoming.Add(1)
	if status != exchange.Here {
		r.counts.peerLate.Add(1)
	}
	if known && r.punctual.asked(o.owner, status == exchange.Here) {
		r.eng.log("info", "node "+strconv.Itoa(int(o.owner))+" sends its samples in time again")
	}
}

// accept takes a sample apart that another node sent. It is checked against the index, as it says itself how large it
// is; what is no good is read from storage.
func (a *assembler) accept(o *op, s exchange.Sample) (stored, bool) {
	e := &a.reader.index.Entries[o.chunk]
	if int(s.Prefix) != a.rec.layout.Prefix() || int(s.Prefix) > len(s.Data) || s.Raw > e.MaxRaw || uint64(len(s.Data))-uint64(s.Prefix) > s.Raw {
		return stored{}, false
	}
	return stored{prefix: s.Data[:s.Prefix:s.Prefix], body: s.Data[s.Prefix:], raw: s.Raw}, true
}

// errLater says that a sample that could not be read may still come.
var errLater = errors.New("it may still come")

// instead is what was read from storage in place of an incoming sample.
func (a *assembler) instead(o *op, f *fetch, status exchange.Status) (stored, error) {
	if f.err == nil {
		if !o.replaced {
			o.replaced = true
			a.pass.run.counts.peerFallback.Add(1)
		}
		return f.stored, nil
	}
	if !notShared(f.err) {
		return stored{}, f.err
	}
	if status == exchange.Coming {
		o.unread = true
		return stored{}, errLater
	}
	e := fault.Wrap(fault.Peer, f.err, "node %d does not send its samples (%s), and they can't be read from here: storage is not shared "+
		"between the nodes, or not there", o.owner, a.pass.partitionsOf(o.owner))
	e.Peer = "node " + strconv.Itoa(int(o.owner))
	return stored{}, e
}

// notShared says whether a read failed because this node has no access to the file.
func notShared(err error) bool {
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != fault.IO {
		return false
	}
	return slices.ContainsFunc([]syscall.Errno{syscall.ENOENT, syscall.ENOTDIR, syscall.EACCES, syscall.EPERM, syscall.ESTALE, syscall.ENODEV,
		syscall.ENXIO}, func(e syscall.Errno) bool { return errors.Is(err, e) || f.Errno == e })
}

// partitionsOf names a node's partitions for messages.
func (p *pass) partitionsOf(node uint16) string {
	const most = 12
	var names []string
	n := 0
	for partition, home := range p.owns.homes {
		if home != node {
			continue
		}
		if n++; n <= most {
			names = append(names, strconv.Itoa(partition))
		}
	}
	text := "partitions " + strings.Join(names, ", ")
	if n > most {
		text += " and " + strconv.Itoa(n-most) + " more"
	}
	return text
}

// lookAhead begins to read what will have to come from storage, as far as memory was set aside for it: samples that pad,
// samples that their owner will not send, and those of owners on probation that are not there.
func (a *assembler) lookAhead(j *job) {
	in, r := a.pass.in, a.pass.run
	for ; j.looked < len(j.ops); j.looked++ {
		o := &j.ops[j.looked]
		if o.dest < 0 || o.own || o.unread || j.fetch(o) != nil {
			continue
		}
		if o.in >= 0 {
			if o.in < j.took {
				continue
			}
			_, status, _ := in.look(j.ordinal + uint64(o.in))
			if status == exchange.Here || status == exchange.Coming && !r.punctual.onProbation(o.owner) {
				continue
			}
		}
		if !r.margin.take() {
			return
		}
		a.keep(j, o, a.reader.fetch(uint32(o.chunk), o.sample, &r.margin))
	}
}

// exchanges says whether samples come from other nodes.
func (a *assembler) exchanges() bool { return a.pass != nil && a.pass.in != nil }

// single returns a sample that is read by itself.
func (a *assembler) single(j *job, i int) (stored, error) {
	o := &j.ops[i]
	f := a.start(j, o)
	if err := a.wait(j, o.chunk, f.done, func() string { return "a sample of " + a.reader.where(o.chunk) }); err != nil {
		return stored{}, err
	}
	return f.stored, f.err
}

// start reads a sample by itself now, unless that was begun.
func (a *assembler) start(j *job, o *op) *fetch {
	if f := j.fetch(o); f != nil {
		return f
	}
	var spare *spare
	if a.exchanges() && a.pass.run.margin.take() {
		spare = &a.pass.run.margin // else: every assembler has memory for one more
	}
	f := a.reader.fetch(uint32(o.chunk), o.sample, spare)
	a.keep(j, o, f)
	return f
}

// keep notes that a sample is being read by itself.
func (a *assembler) keep(j *job, o *op, f *fetch) {
	if o.fetch < 0 {
		o.fetch = int32(len(j.fetched))
		j.fetched = append(j.fetched, nil)
	}
	j.fetched[o.fetch] = f
	a.pass.countFetch()
}

// fetch is a sample's reading by itself, nil if that was not begun.
func (j *job) fetch(o *op) *fetch {
	if o.fetch < 0 {
		return nil
	}
	return j.fetched[o.fetch]
}

// letGo ends the use of a sample's reading.
func (j *job) letGo(o *op) {
	if f := j.fetch(o); f != nil {
		j.fetched[o.fetch] = nil
		f.letGo()
	}
}

// release gives back what a job has read and nobody needs.
func (j *job) release() {
	for i, f := range j.fetched {
		if f != nil {
			f.letGo()
			j.fetched[i] = nil
		}
	}
}

// passed notes that a job needs what came for an op no more, and that it is behind its position.
func (a *assembler) passed(j *job, o *op) {
	p := a.pass
	if o.in >= 0 {
		p.in.took(j, o.in+1)
	}
	j.letGo(o)
	if at := j.first + int64(o.pos) + 1; at > j.passed.Load() {
		j.passed.Store(at)
	}
	p.push.pokeIfBlocked()
}

func isDone(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
