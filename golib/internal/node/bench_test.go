package node

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redox-loader/redox/golib/internal/plan"
	"github.com/redox-loader/redox/golib/internal/store"
)

// BenchmarkEpoch measures whole epochs with the page cache hot, each beside one of a bare loop on one thread, so that
// a busy machine slows both: the limit of this way of loading, in Go.
//
//	tenth:    window and memory a tenth of the data; the loop reads whole chunks by pread and copies samples out
//	resident: everything fits; the loop only copies samples out
//
// "ahead" delivers slots that are assembled ahead, "direct" fills the caller's memory.
func BenchmarkEpoch(b *testing.B) {
	for _, size := range []int{3072, 110 << 10} {
		d := write(b, fixedShape(b, (1<<30)/size, (8<<20)/size, size))
		for _, c := range []struct {
			name     string
			prefetch int
			resident bool
		}{{"tenth/ahead", 3, false}, {"tenth/direct", 0, false}, {"resident/ahead", 3, true}, {"resident/direct", 0, true}} {
			b.Run(fmt.Sprintf("%d/%s", size, c.name), func(b *testing.B) { d.benchEpoch(b, size, c.prefetch, c.resident) })
		}
	}
}

func (d *dataset) benchEpoch(b *testing.B, size, prefetch int, resident bool) {
	const batch, open = 256, 8
	cfg := RunConfig{Plan: d.plan(b, plan.Spec{Seed: 1, Shuffle: true, Window: open}), World: oneRank(batch), Prefetch: prefetch}
	limit := int64(1<<30)/10 + 4*int64(batch*size) // batches of 28 MB would be a tenth by themselves
	bare := newBareLoop(b, d, size, open)
	if resident {
		limit, bare = 3<<29, newBareLoop(b, d, size, len(d.index.Entries))
	}
	r := newRun(b, d.engine(b, d.source(store.Buffered), limit), cfg)
	mem := d.memory(batch, r.rec)
	epoch := uint64(0)
	pass := func() (n int) {
		if err := r.Start(epoch, 0); err != nil {
			b.Fatal(err)
		}
		epoch++
		for {
			var got Batch
			var slot *Slot
			var err error
			if prefetch > 0 {
				slot, err = r.Acquire(&got, -1)
			} else {
				err = r.Next(&mem, -1)
				got.N = mem.N
			}
			if ended(err) {
				return n
			}
			if err != nil {
				b.Fatal(err)
			}
			if n += got.N; slot != nil {
				slot.Release()
			}
		}
	}
	// samples per second, and nanoseconds of processor time per sample: on a busy machine the second says more.
	rate := func(f func() int) (persec, cpu float64) {
		begin, used := time.Now(), processorTime()
		n := float64(f())
		return n / time.Since(begin).Seconds(), float64(processorTime()-used) / n
	}
	pass()
	bare.epoch(resident)
	var ours, limits, ratios, cpu, cpuBare []float64
	for b.Loop() {
		x, used := rate(pass)
		limit, usedBare := rate(func() int { return bare.epoch(resident) })
		ours, limits, ratios = append(ours, x), append(limits, limit), append(ratios, x/limit)
		cpu, cpuBare = append(cpu, used), append(cpuBare, usedBare)
	}
	b.ReportMetric(median(cpu), "cpu-ns/sample")
	b.ReportMetric(median(cpuBare), "bare-cpu-ns")
	b.ReportMetric(median(ours), "samples/s")
	b.ReportMetric(median(limits), "bare/s")
	b.ReportMetric(median(ratios), "ratio")
	b.ReportMetric(0, "ns/op")
}

// processorTime is what all threads of this process have used.
func processorTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

// bareLoop is the least that has to be done: chunks in plain memory, random samples of random open chunks copied into
// one batch.
type bareLoop struct {
	b      *testing.B
	d      *dataset
	size   int
	shards []int
	mem    [][]byte
	left   []int
	next   int
	dst    []byte
	random uint64
}

func newBareLoop(b *testing.B, d *dataset, size, open int) *bareLoop {
	l := &bareLoop{b: b, d: d, size: size, mem: make([][]byte, open), left: make([]int, open), dst: make([]byte, 256*size), random: 1}
	for _, s := range d.manifest.Shards {
		fd, err := unix.Open(filepath.Join(d.dir, s.Name), os.O_RDONLY, 0)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { unix.Close(fd) })
		l.shards = append(l.shards, fd)
	}
	for i := range l.mem {
		m, err := unix.Mmap(-1, 0, 9<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { unix.Munmap(m) })
		l.mem[i] = m
	}
	return l
}

// load reads the next chunk into a place; with keep it is there from the epoch before.
func (l *bareLoop) load(i int, keep bool) bool {
	if l.next == len(l.d.index.Entries) {
		return false
	}
	e := &l.d.index.Entries[l.next]
	if !keep {
		if _, err := unix.Pread(l.shards[e.Shard], l.mem[i][:e.Stored], int64(e.Offset)); err != nil {
			l.b.Fatal(err)
		}
	}
	l.left[i] = int(e.Samples)
	l.next++
	return true
}

func (l *bareLoop) epoch(resident bool) (n int) {
	keep := resident && l.next > 0
	l.next = 0
	for i := range l.mem {
		l.load(i, keep)
	}
	perChunk := uint64(l.d.index.Entries[0].Samples - 1)
	for at := 0; ; at = (at + 1) % 256 {
		l.random = l.random*6364136223846793005 + 1442695040888963407
		i := int(l.random>>33) % len(l.mem)
		if l.left[i] == 0 && !l.load(i, keep) {
			if i = slices.IndexFunc(l.left, func(n int) bool { return n > 0 }); i < 0 {
				return n
			}
		}
		row := int((l.random >> 20) % perChunk)
		l.left[i]--
		copy(l.dst[at*l.size:(at+1)*l.size], l.mem[i][512+row*(l.size+8):])
		n++
	}
}
