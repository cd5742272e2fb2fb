package redox

import (
	"time"

	"github.com/redox-loader/redox/golib/internal/node"
)

// stats are the counters of redox_stats, as docs/capi.md fixes them. Samples, batches and waits are of this loader's
// rank, reads and memory of its engine.
type stats struct {
	Samples        int64   `json:"samples"`
	Batches        int64   `json:"batches"`
	BytesDelivered int64   `json:"bytes_delivered"`
	ChunksRead     int64   `json:"chunks_read"`
	ChunkHits      int64   `json:"chunk_hits"` // chunks that were still in memory
	Reads          int64   `json:"reads"`
	BytesRead      int64   `json:"bytes_read"`
	SingleReads    int64   `json:"single_reads"` // of reads: tables and samples read by themselves
	SingleBytes    int64   `json:"single_bytes"`
	Retries        int64   `json:"retries"` // after a failure or a wrong checksum
	Redirected     int64   `json:"redirected"`
	Padded         int64   `json:"padded"`
	Skipped        int64   `json:"skipped"`
	ResidentBytes  int64   `json:"resident_bytes"`
	ResidentPeak   int64   `json:"resident_peak"`
	Wait           float64 `json:"wait_s"`
	WaitStorage    float64 `json:"wait_storage_s"`
	WaitPeer       float64 `json:"wait_peer_s"`
	WaitDecode     float64 `json:"wait_decode_s"`
	PeerSamples    int64   `json:"peer_samples"` // that other nodes were to send
	PeerBytesIn    int64   `json:"peer_bytes_in"`
	PeerBytesOut   int64   `json:"peer_bytes_out"`
	PeerLate       int64   `json:"peer_late"`
	PeerFallback   int64   `json:"peer_fallback"`
	VIF            float64 `json:"vif"` // predicted mixing score of a global batch, 1 = full shuffle
}

func statsOf(s node.Stats) stats {
	return stats{
		Samples: s.Samples, Batches: s.Batches, BytesDelivered: s.BytesDelivered, ChunksRead: s.ChunksRead, ChunkHits: s.ChunkHits,
		Reads: s.Reads, BytesRead: s.BytesRead, SingleReads: s.SingleReads, SingleBytes: s.SingleBytes, Retries: s.Retries + s.Rereads,
		Redirected: s.Redirected, Padded: s.Padded, Skipped: s.Skipped, ResidentBytes: s.Resident, ResidentPeak: s.ResidentPeak,
		Wait: seconds(s.Wait), WaitStorage: seconds(s.WaitStorage), WaitPeer: seconds(s.WaitPeer), WaitDecode: seconds(s.WaitDecode),
		PeerSamples: s.PeerSamples, PeerBytesIn: s.PeerBytesIn, PeerBytesOut: s.PeerBytesOut, PeerLate: s.PeerLate,
		PeerFallback: s.PeerFallback,
	}
}

func seconds(d time.Duration) float64 { return d.Seconds() }

// StatsJSON is what happened so far: in the current epoch, and in all; and since the connections were made, for each of
// the other nodes.
func (l *Loader) StatsJSON() ([]byte, error) {
	epoch, total := l.run.Stats()
	l.mu.Lock()
	number := l.epoch
	l.mu.Unlock()
	limit := l.engine.Limit() + l.mesh.memory()
	e, t := statsOf(epoch), statsOf(total)
	e.VIF, t.VIF = l.vif, l.vif
	return encode(struct {
		Epoch  stats       `json:"epoch"`
		Total  stats       `json:"total"`
		Peers  []peerStats `json:"peers"`
		Number uint64      `json:"epoch_number"`
		Limit  int64       `json:"memory_limit"`
	}{e, t, l.mesh.stats(), number, limit})
}
