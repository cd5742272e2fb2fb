package pack_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redox-loader/redox/golib/internal/pack"
	"github.com/redox-loader/redox/golib/internal/pack/packtest"
)

// BenchmarkTreeAgainstCp packs 20,000 files of 3 to 20 KB and copies them with cp -r, hot and (as root) cold, each into
// a new directory on the same disk. "of-cp" is cp's time over ours: 1 is as fast, although we sync and it doesn't.
func BenchmarkTreeAgainstCp(b *testing.B) {
	root := filepath.Join(b.TempDir(), "tree")
	r := rand.New(rand.NewPCG(1, 1))
	data := make([]byte, 20_000)
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	for i := range 20_000 {
		dir := filepath.Join(root, fmt.Sprintf("c%02d", i%20))
		if i < 20 {
			if err := os.MkdirAll(dir, 0o777); err != nil {
				b.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%06d.jpg", i)), data[r.IntN(3000):][:3000+r.IntN(14_000)], 0o666); err != nil {
			b.Fatal(err)
		}
	}
	for _, cold := range []bool{false, true} {
		b.Run(map[bool]string{false: "hot", true: "cold"}[cold], func(b *testing.B) {
			var cp, ours time.Duration
			for b.Loop() {
				cp += timed(b, cold, func(dst string) error { return exec.Command("cp", "-r", root, dst).Run() })
				ours += timed(b, cold, func(dst string) error {
					_, err := pack.Tree(context.Background(), dst, pack.TreeOptions{Root: root, Format: "imagefolder", Options: pack.Options{Shuffle: true}})
					return err
				})
			}
			b.ReportMetric(cp.Seconds()/ours.Seconds(), "of-cp")
			b.ReportMetric(cp.Seconds()/float64(b.N), "cp-s")
			b.ReportMetric(ours.Seconds()/float64(b.N), "ours-s")
		})
	}
}

func timed(b *testing.B, cold bool, do func(dst string) error) time.Duration {
	b.Helper()
	dir, err := os.MkdirTemp(b.TempDir(), "")
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(dir)
	_ = exec.Command("sync").Run() // neither pays for what the other left dirty
	if cold && os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0) != nil {
		b.Skip("needs root")
	}
	start := time.Now()
	if err := do(filepath.Join(dir, "out")); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

// BenchmarkWriter is what one goroutine can hand in: samples of 3 KB, without and with the sort on disk.
func BenchmarkWriter(b *testing.B) {
	samples := packtest.Numbered(10_000, 3000, 10)
	for _, o := range []pack.Options{{Codec: "none"}, {Codec: "lz4"}, {Codec: "none", Shuffle: true}} {
		b.Run(fmt.Sprintf("%s/shuffle=%v", o.Codec, o.Shuffle), func(b *testing.B) {
			o.Schema = packtest.Schema(b, "data", "bytes", "label", "int")
			b.SetBytes(10_000 * 3008)
			for b.Loop() {
				w, err := pack.NewWriter(context.Background(), filepath.Join(b.TempDir(), fmt.Sprint(time.Now().UnixNano())), o)
				if err != nil {
					b.Fatal(err)
				}
				for i, s := range samples {
					if err := w.Write(uint64(i), "", s.Vals); err != nil {
						b.Fatal(err)
					}
				}
				if _, err := w.Commit(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
