package peer_test

import (
	"hash/crc32"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redox-loader/redox/golib/internal/exchange"
	"github.com/redox-loader/redox/golib/internal/peer/peertest"
)

// How fast samples cross a link of 1 Gbit/s is a matter of the protocol alone in virtual time, where processors are
// endlessly fast. What is lost costs: the congestion control of quic-go is NewReno.
func TestLinkIsFilled(t *testing.T) {
	const rate = 125e6
	for _, c := range []struct {
		name  string
		delay time.Duration // one way
		loss  float64
		least float64 // share of the link
	}{
		{"1 ms", time.Millisecond / 2, 0, 0.9},
		{"10 ms", 5 * time.Millisecond, 0, 0.85},
		{"1 ms, 1 % lost", time.Millisecond / 2, 0.01, 0.12},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				link := peertest.Link{Delay: c.delay, Loss: c.loss, Rate: rate}
				cluster := newCluster(t, newJob(1, []int{1, 1}, 0, 110<<10), peertest.NewNetwork(1, link))
				samples := 300
				if raceEnabled {
					samples = 100
				}
				cluster.stream(samples, 64) // congestion windows grow
				took := cluster.stream(samples, 64)
				speed := float64(samples) * (110 << 10) / took.Seconds()
				t.Logf("%.1f MB/s, %.2f of the link", speed/1e6, speed/rate)
				if speed < c.least*rate {
					t.Errorf("%.1f MB/s, want %.1f", speed/1e6, c.least*rate/1e6)
				}
				cluster.close()
				time.Sleep(time.Minute)
			})
		})
	}
}

// stream sends samples of the largest size from node 0 to node 1, and says how long that took.
func (c *cluster) stream(samples, credit int) time.Duration {
	wake := make(chan struct{}, 1)
	c.epoch++
	config := exchange.Config{ID: exchange.ID{Epoch: c.epoch}, Ranks: c.job.ranks, Credit: credit, Largest: c.job.largest,
		Notify: func() {}}
	out, err := c.meshes[0].Open(config)
	if err != nil {
		c.t.Fatal(err)
	}
	config.Rank, config.Notify = 1, func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	in, err := c.meshes[1].Open(config)
	if err != nil {
		c.t.Fatal(err)
	}
	start := time.Now()
	data := make([]byte, c.job.largest)
	sum := crc32.Checksum(data, castagnoli)
	for n := range samples {
		out.Send(exchange.Outgoing{To: 1, Ordinal: uint64(n), Position: int64(n), Done: func(bool) {},
			Sample: exchange.Sample{Data: data, CRC: sum}})
	}
	expected := 0
	for n := 0; n < samples; {
		for ; expected < min(n+credit, samples); expected++ {
			in.Expect(int64(expected), 0)
		}
		switch _, status := in.Look(uint64(n)); status {
		case exchange.Coming:
			<-wake
		case exchange.Lost:
			c.t.Fatal("a sample is lost")
		default:
			n++
			in.Done(uint64(n))
		}
	}
	took := time.Since(start)
	in.Close()
	out.Close()
	return took
}
