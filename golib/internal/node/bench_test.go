package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/plan"
	"github.com/redox-loader/redox/golib/internal/store"
)

// BenchmarkEpoch measures samples per second with the page cache hot, beside a bare loop in the same run that reads
// whole chunks with pread and copies their samples out at random: the limit of this way, in Go, on one thread.
//
//	tenth:    window and memory_limit a tenth of the data; compare with the loop of pread and gather
//	resident: everything fits; compare with the gather alone
func BenchmarkEpoch(b *testing.B) {
	for _, size := range []int{3072, 110 << 10} {
		samples := (1 << 30) / size
		perChunk := (8 << 20) / size
		d := write(b, fixedShape(b, samples, perChunk, size))
		for _, memory := range []string{"tenth", "resident"} {
			b.Run(fmt.Sprintf("%d/%s", size, memory), func(b *testing.B) { d.benchEpoch(b, size, memory) })
		}
	}
}

func (d *dataset) benchEpoch(b *testing.B, size int, memory string) {
	chunks := len(d.index.Entries)
	spec := plan.Spec{Seed: 1, Shuffle: true, Window: chunks / 10}
	limit := int64(1<<30) / 10
	if size > 10000 {
		limit *= 2
	}
	if memory == "resident" {
		spec.Window, limit = 64, 3<<29
	} else {
		spec.Window = 8 // with slots and read-ahead that is a tenth
	}
	const batch = 256
	prefetch, _ := strconv.Atoi(os.Getenv("PF"))
	e := d.engine(b, d.source(store.Buffered), limit)
	r := newRun(b, e, RunConfig{Plan: d.plan(b, spec), World: oneRank(batch), Prefetch: prefetch})
	epoch := uint64(0)
	pass := func() (n int) {
		if err := r.Start(epoch, 0); err != nil {
			b.Fatal(err)
		}
		epoch++
		mem := d.memory(batch, r.rec)
		for prefetch == 0 {
			err := r.Next(&mem, -1)
			if err != nil {
				if fault.KindOf(err) != fault.EndOfEpoch {
					b.Fatal(err)
				}
				return n
			}
			n += mem.N
		}
		for {
			var batch Batch
			s, err := r.Acquire(&batch, -1)
			if err != nil {
				if fault.KindOf(err) != fault.EndOfEpoch {
					b.Fatal(err)
				}
				return n
			}
			n += batch.N
			s.Release()
		}
	}
	pass()
	b.ResetTimer()
	n, begin := 0, time.Now()
	for b.Loop() {
		n += pass()
	}
	rate := float64(n) / time.Since(begin).Seconds()
	b.StopTimer()
	bare := d.bare(b, size, memory == "resident", batch)
	b.ReportMetric(rate, "samples/s")
	b.ReportMetric(bare, "bare/s")
	b.ReportMetric(rate/bare, "ratio")
}

// bare is the limit: one thread, 64 chunks of plain memory, random rows of random open chunks into a batch.
func (d *dataset) bare(b *testing.B, size int, resident bool, batch int) float64 {
	chunks := len(d.index.Entries)
	const open = 8
	fds := make([]int, len(d.manifest.Shards))
	for i, s := range d.manifest.Shards {
		fd, err := unix.Open(filepath.Join(d.dir, s.Name), os.O_RDONLY, 0)
		if err != nil {
			b.Fatal(err)
		}
		defer unix.Close(fd)
		fds[i] = fd
	}
	slots := open
	if resident {
		slots = chunks
	}
	mem := make([][]byte, slots)
	for i := range mem {
		m, err := unix.Mmap(-1, 0, 9<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
		if err != nil {
			b.Fatal(err)
		}
		defer unix.Munmap(m)
		mem[i] = m
	}
	left := make([]int, slots)
	next := 0
	load := func(i int) bool {
		if next == chunks {
			left[i] = 0
			return false
		}
		e := d.index.Entries[next]
		if _, err := unix.Pread(fds[e.Shard], mem[i][:e.Stored], int64(e.Offset)); err != nil {
			b.Fatal(err)
		}
		left[i] = int(e.Samples)
		next++
		return true
	}
	dst := make([]byte, batch*size)
	rng := uint64(1)
	run := func() int {
		n, at := 0, 0
		row := len(d.index.Entries) * 0
		for n < int(d.index.Samples()) {
			rng = rng*6364136223846793005 + 1442695040888963407
			i := int(rng>>33) % slots
			if left[i] == 0 {
				if !load(i) {
					i = -1
					for k := range left {
						if left[k] > 0 {
							i = k
							break
						}
					}
					if i < 0 {
						break
					}
				}
			}
			row = int(rng>>20) % int(d.index.Entries[0].Samples-1)
			left[i]--
			copy(dst[at*size:(at+1)*size], mem[i][512+row*(size+8):])
			at = (at + 1) % batch
			n++
		}
		return n
	}
	if resident {
		for i := range mem {
			load(i)
		}
		saved := append([]int(nil), left...)
		n := run()
		copy(left, saved)
		begin := time.Now()
		n = run()
		return float64(n) / time.Since(begin).Seconds()
	}
	run()
	best := 0.0
	for range 3 {
		next = 0
		begin := time.Now()
		n := run()
		best = max(best, float64(n)/time.Since(begin).Seconds())
	}
	return best
}
