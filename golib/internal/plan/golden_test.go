package plan_test

import (
	"crypto/sha256"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redox-loader/redox/golib/internal/plan"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// Golden plans: orders that must never change, because states saved by users depend on them. If one differs, either
// the change is a bug, or plans get a new version (docs/plan.md); look at the diff before you use -update.
func TestGoldenPlans(t *testing.T) {
	mixed := []uint32{7, 40, 0, 16, 17, 100, 1, 33, 8, 25, 64, 3}
	for name, s := range map[string]plan.Spec{
		"default":    {Samples: repeat(20, 40), Shuffle: true},
		"mixed":      {Samples: mixed, Seed: 42, Shuffle: true, Window: 6, Partitions: 4, Dataset: "mixed"},
		"one-stream": {Samples: mixed, Seed: 1<<64 - 1, Shuffle: true, Window: 5, Partitions: 1},
		"sticky":     {Samples: mixed, Seed: 42, Shuffle: true, Window: 6, Partitions: 4, Sticky: true},
		"subset":     {Samples: mixed, Seed: 7, Shuffle: true, Window: 6, Partitions: 3, Subset: plan.RangeSubset(mixed, 30, 250)},
		"stored":     {Samples: mixed},
		"large":      {Samples: append(repeat(390, 511), 170), Seed: 3, Shuffle: true, Window: 128},
	} {
		t.Run(name, func(t *testing.T) {
			got := describe(t, mustNew(t, s), s)
			path := filepath.Join("..", "..", "..", "tests", "golden", "plan", name+".txt")
			if *update {
				if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(got), 0o666); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s differs; now:\n%s", path, got)
			}
		})
	}
}

// describe writes a plan so that another implementation can be compared with it.
func describe(t *testing.T, p *plan.Plan, s plan.Spec) string {
	var b strings.Builder
	fmt.Fprintf(&b, "chunks %d, samples %d, seed %d, window %d, partitions %d, shuffle %v, sticky %v\n",
		len(s.Samples), p.Size(), s.Seed, p.Window(), p.Partitions(), s.Shuffle, s.Sticky)
	fmt.Fprintf(&b, "hash %s\n", p.Hash())
	for _, epoch := range []uint64{0, 1} {
		e := p.Epoch(epoch)
		order := sha256.New()
		picks := walk(e, p.Size(), 0)
		fmt.Fprintf(&b, "\nepoch %d\nstored numbers of the first positions:", epoch)
		for i, k := range picks {
			n := p.Number(k.Chunk, k.Sample)
			var word [8]byte
			binary.LittleEndian.PutUint64(word[:], uint64(n))
			order.Write(word[:])
			if i < 64 {
				if i%16 == 0 {
					b.WriteString("\n ")
				}
				fmt.Fprintf(&b, " %d", n)
			}
		}
		fmt.Fprintf(&b, "\nSHA-256 of all, as 64-bit little-endian numbers: %x\n", order.Sum(nil))
		b.WriteString("first openings, position:chunk/partition:")
		for i, o := range opens(e, 0) {
			if i == 24 {
				break
			}
			if i%8 == 0 {
				b.WriteString("\n ")
			}
			fmt.Fprintf(&b, " %d:%d/%d", o.Position, o.Chunk, o.Partition)
		}
		fmt.Fprintf(&b, "\nhomes on nodes of 2, 1 and 1 ranks: %v\n", p.Homes([]int{2, 1, 1}, epoch))
		d := mustDeal(t, e, plan.World{Nodes: []int{2, 1, 1}, BatchSize: 3, Exchange: plan.Exchange{Fraction: 0.5}}, 5)
		b.WriteString("places of the global batch from position 5, batch size 3, exchange 0.5:")
		batch, _ := d.Next()
		for _, items := range batch.Ranks {
			b.WriteString(" [")
			for i, item := range items {
				fmt.Fprintf(&b, "%s%d", strings.Repeat(" ", min(i, 1)), item.Pos)
			}
			b.WriteString("]")
		}
		b.WriteString("\n")
	}
	return b.String()
}
