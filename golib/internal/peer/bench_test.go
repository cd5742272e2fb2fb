package peer_test

import (
	"context"
	"crypto/tls"
	"hash/crc32"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/redox-loader/redox/golib/internal/exchange"
	"github.com/redox-loader/redox/golib/internal/peer"
)

const (
	benchSample = 110 << 10 // bytes of a sample
	benchRound  = 300       // samples in a round
)

// carrier moves benchRound samples of benchSample bytes from one end to the other.
type carrier struct {
	name  string
	round func()
	wall  time.Duration
	cpu   time.Duration // of both ends
}

func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (c *carrier) measure() {
	start, cpu := time.Now(), processorTime()
	c.round()
	c.wall += time.Since(start)
	c.cpu += processorTime() - cpu
}

// BenchmarkExchange compares the exchange with bare QUIC streams of the same messages over the same sockets, and with
// TLS over TCP, all on loopback and in turns, so that what else runs on the machine disturbs all alike. What counts is the
// ratios.
func BenchmarkExchange(b *testing.B) {
	carriers := []*carrier{benchLane(b), benchQUIC(b), benchTLS(b)}
	for _, c := range carriers {
		c.round()
	}
	b.SetBytes(benchSample * benchRound)
	b.ReportAllocs()
	rounds := 0
	for b.Loop() {
		for _, c := range carriers {
			c.measure()
		}
		rounds++
	}
	gigabytes := float64(rounds) * benchSample * benchRound / 1e9
	for _, c := range carriers {
		b.ReportMetric(gigabytes*1e3/c.wall.Seconds(), c.name+"-MB/s")
		b.ReportMetric(c.cpu.Seconds()/gigabytes, c.name+"-cpu-s/GB")
	}
	lane, bare, tcp := carriers[0], carriers[1], carriers[2]
	b.ReportMetric(bare.wall.Seconds()/lane.wall.Seconds(), "of-bare-QUIC")
	b.ReportMetric(tcp.wall.Seconds()/lane.wall.Seconds(), "of-TLS/TCP")
	b.ReportMetric(lane.cpu.Seconds()/bare.cpu.Seconds(), "cpu-of-bare-QUIC")
	b.ReportMetric(0, "ns/op") // all three together: says nothing
}

// benchLane moves samples through two meshes.
func benchLane(b *testing.B) *carrier {
	j := newJob(1, []int{1, 1}, 0, benchSample)
	c := onLoopback(b, j)
	b.Cleanup(c.close)
	data := make([]byte, benchSample)
	sum := crc32.Checksum(data, castagnoli)
	epoch := uint64(0)
	return &carrier{name: "exchange", round: func() {
		epoch++
		wake := make(chan struct{}, 1)
		config := exchange.Config{ID: exchange.ID{Epoch: epoch}, Ranks: j.ranks, Credit: 64, Largest: benchSample, Notify: func() {}}
		out, err := c.meshes[0].Open(config)
		if err != nil {
			b.Fatal(err)
		}
		config.Rank, config.Notify = 1, func() {
			select {
			case wake <- struct{}{}:
			default:
			}
		}
		in, err := c.meshes[1].Open(config)
		if err != nil {
			b.Fatal(err)
		}
		for n := range uint64(benchRound) {
			out.Send(exchange.Outgoing{To: 1, Ordinal: n, Position: int64(n), Done: func(bool) {},
				Sample: exchange.Sample{Data: data, CRC: sum}})
		}
		expected := 0
		for n := 0; n < benchRound; {
			for ; expected < min(n+64, benchRound); expected++ {
				in.Expect(int64(expected), 0)
			}
			switch _, status := in.Look(uint64(n)); status {
			case exchange.Coming:
				<-wake
			case exchange.Lost:
				b.Fatal("a sample is lost")
			default:
				n++
				in.Done(uint64(n))
			}
		}
		in.Close()
		out.Close()
	}}
}

func benchTLSConfig(b *testing.B) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{selfSigned(b, "bench")}, InsecureSkipVerify: true, NextProtos: []string{"bench"},
		MinVersion: tls.VersionTLS13}
}

// benchQUIC writes the samples to one stream and reads them from it.
func benchQUIC(b *testing.B) *carrier {
	config := benchTLSConfig(b)
	windows := &quic.Config{InitialStreamReceiveWindow: 9 << 20, MaxStreamReceiveWindow: 9 << 20,
		InitialConnectionReceiveWindow: 12 << 20, MaxConnectionReceiveWindow: 12 << 20}
	ctx := context.Background()
	var ends [2]*quic.Transport
	for i := range ends {
		s, err := peer.OpenSocket("127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		ends[i] = &quic.Transport{Conn: s}
		b.Cleanup(func() { ends[i].Close(); s.Close() })
	}
	listener, err := ends[1].Listen(config, windows)
	if err != nil {
		b.Fatal(err)
	}
	out, err := ends[0].Dial(ctx, ends[1].Conn.LocalAddr(), config, windows)
	if err != nil {
		b.Fatal(err)
	}
	in, err := listener.Accept(ctx)
	if err != nil {
		b.Fatal(err)
	}
	return &carrier{name: "bare-QUIC", round: func() {
		w, err := out.OpenUniStreamSync(ctx)
		if err != nil {
			b.Fatal(err)
		}
		move(b, w, func() io.Reader {
			r, err := in.AcceptUniStream(ctx)
			if err != nil {
				b.Error(err)
			}
			return r
		})
		w.Close()
	}}
}

// benchTLS does the same over TCP.
func benchTLS(b *testing.B) *carrier {
	config := benchTLSConfig(b)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { listener.Close() })
	accepted := make(chan net.Conn)
	go func() {
		c, err := listener.Accept()
		if err == nil {
			err = c.(*tls.Conn).Handshake()
		}
		if err != nil {
			b.Error(err)
		}
		accepted <- c
	}()
	out, err := tls.Dial("tcp", listener.Addr().String(), config)
	if err != nil {
		b.Fatal(err)
	}
	in := <-accepted
	b.Cleanup(func() { out.Close(); in.Close() })
	return &carrier{name: "TLS/TCP", round: func() { move(b, out, func() io.Reader { return in }) }}
}

// move writes the samples and reads them, each into its own memory.
func move(b *testing.B, w io.Writer, from func() io.Reader) {
	data := make([]byte, benchSample)
	var wg sync.WaitGroup
	wg.Go(func() {
		r := from()
		into := make([]byte, 64*benchSample)
		for n := range benchRound {
			if _, err := io.ReadFull(r, into[n%64*benchSample:][:benchSample]); err != nil {
				b.Error(err)
				return
			}
		}
	})
	for range benchRound {
		if _, err := w.Write(data); err != nil {
			b.Fatal(err)
		}
	}
	wg.Wait()
}
