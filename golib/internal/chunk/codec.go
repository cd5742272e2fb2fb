package chunk

import (
	"hash/crc32"

	"github.com/pierrec/lz4/v4"
)

// Codec says how bodies are stored.
type Codec uint8

// The codecs.
const (
	None Codec = iota
	LZ4        // each body is an lz4 block of its own, or raw where that saves less than 1/16
)

func (c Codec) String() string {
	if c == LZ4 {
		return "lz4"
	}
	return "none"
}

const (
	// minCompress: a block of fewer bytes can't get smaller.
	minCompress = 16
	// maxCompress: lz4 blocks end below 2 GiB; larger bodies stay raw.
	maxCompress = 1 << 30
	// maxRatio is lz4's best case, 255 bytes for one; it bounds what a table may make a reader allocate.
	maxRatio = 256
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Sum is the CRC-32C of b.
func Sum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// SumMore goes on from the CRC-32C of what came before b.
func SumMore(sum uint32, b []byte) uint32 { return crc32.Update(sum, castagnoli, b) }

// SumJoin returns the CRC-32C of two pieces one after the other from the sums of each, where the second has n bytes:
// so pieces can be summed in parallel, and a header that is written last costs no second pass over its file.
func SumJoin(first, second uint32, n uint64) uint32 {
	// Appending a zero byte to a message maps its CRC by a linear function over GF(2); square it for 2, 4, 8 bytes…
	var odd, even [32]uint32
	odd[0] = crc32.Castagnoli
	for i := 1; i < 32; i++ {
		odd[i] = 1 << (i - 1) // one zero bit
	}
	square(&even, &odd) // two
	square(&odd, &even) // four
	for from, to := &odd, &even; n > 0; n >>= 1 {
		square(to, from)
		if n&1 != 0 {
			first = times(to, first)
		}
		from, to = to, from
	}
	return first ^ second
}

func square(dst, m *[32]uint32) {
	for i := range m {
		dst[i] = times(m, m[i])
	}
}

func times(m *[32]uint32, v uint32) uint32 {
	sum := uint32(0)
	for i := 0; v != 0; i, v = i+1, v>>1 {
		if v&1 != 0 {
			sum ^= m[i]
		}
	}
	return sum
}

// compress appends body as an lz4 block to dst, or returns false and leaves it raw to the caller.
func compress(c *lz4.Compressor, dst, body []byte) ([]byte, bool) {
	if len(body) < minCompress || len(body) > maxCompress {
		return dst, false
	}
	at := len(dst)
	room := lz4.CompressBlockBound(len(body))
	if cap(dst)-at < room {
		grown := make([]byte, at, max(2*cap(dst), at+room))
		copy(grown, dst)
		dst = grown
	}
	n, err := c.CompressBlock(body, dst[at:at+room])
	if err != nil || n == 0 || n > len(body)-len(body)/16 {
		return dst, false
	}
	return dst[:at+n], true
}

// decompress fills dst exactly.
func decompress(dst, block []byte) bool {
	n, err := lz4.UncompressBlock(block, dst)
	return err == nil && n == len(dst)
}
