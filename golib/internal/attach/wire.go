package attach

import (
	"encoding/binary"

	"github.com/redox-loader/redox/golib/internal/fault"
	"github.com/redox-loader/redox/golib/internal/node"
)

// version is that of the messages; a client of another one is refused.
const version = 1

// kind is what a message is.
type kind uint8

// Requests. RELEASE, BYE and LEAVE have no answer.
const (
	hello kind = iota + 1
	begin
	next
	claim
	release
	memory
	set
	check
	status
	origin
	bye
	leave
	allocate
	read
	counts
	whoMeets
	meet
)

// Requests of those who only look, and of those who count. Apart, so that more of the above may come.
const (
	look kind = 20 + iota
	lines
	skipped
)

// Answers.
const (
	done kind = iota + 64
	failed
	welcome
	began
	batch
	ended
	claimed
	mapped
	text
	allocated
	yourCard
)

// headSize is that of the header: kind, version, two bytes unused, and the number of the request, which its answer has too.
const headSize = 8

// releaseSize is that of RELEASE. It is the only one after which another message may follow in the same packet.
const releaseSize = headSize + 16

// maxMessage bounds a message; the sender's socket buffer bounds it as well.
const maxMessage = 128 << 10

// message is a request, or an answer on its way.
type message struct {
	kind   kind
	number uint32
	body   []byte
}

// parse reads a message; its body lies in b.
func parse(b []byte) (message, error) {
	if len(b) < headSize {
		return message{}, fault.New(fault.Invalid, "a message of %d bytes", len(b))
	}
	m := message{kind: kind(b[0]), number: binary.LittleEndian.Uint32(b[4:]), body: b[headSize:]}
	if b[1] != version {
		return m, fault.New(fault.Version, "the client speaks version %d of the protocol, this engine %d: all processes of a "+
			"job must use the same release", b[1], version)
	}
	return m, nil
}

func (m message) append(b []byte) []byte {
	b = append(b, byte(m.kind), version, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, m.number)
	return append(b, m.body...)
}

// reader takes numbers off a body. Beyond its end it gives zeros and notes it.
type reader struct {
	body  []byte
	short bool
}

func (r *reader) u64() uint64 {
	if len(r.body) < 8 {
		r.short = true
		return 0
	}
	v := binary.LittleEndian.Uint64(r.body)
	r.body = r.body[8:]
	return v
}

func (r *reader) i64() int64 { return int64(r.u64()) }

func (r *reader) u32() uint32 {
	if len(r.body) < 4 {
		r.short = true
		return 0
	}
	v := binary.LittleEndian.Uint32(r.body)
	r.body = r.body[4:]
	return v
}

// err says whether the body was just as long as what was read.
func (r *reader) err() error {
	if r.short || len(r.body) > 0 {
		return fault.New(fault.Invalid, "a message has the wrong length")
	}
	return nil
}

func numbers(values ...uint64) []byte {
	b := make([]byte, 0, 8*len(values))
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// word is what the user said about epochs: the serial number of what was said last, and where it leaves the next pass.
type word struct {
	serial   uint64
	epoch    uint64
	position int64
	named    bool  // by set_epoch: of an epoch that is used up nothing is left, instead of going on with the next
	seen     int64 // epoch of a pass that began since, -1 if none is known: for an engine in the place of one that died
}

func (r *reader) word() word {
	return word{serial: r.u64(), epoch: r.u64(), position: r.i64(), named: r.u64() != 0, seen: r.i64()}
}

// encodeBatch is the body of the answer that gives a batch.
func encodeBatch(l *loan) []byte {
	b := &l.batch
	columns, index := l.places()
	out := binary.LittleEndian.AppendUint32(make([]byte, 0, 64+48*len(columns)), l.id)
	for _, v := range []uint32{l.generation, uint32(b.N), b.Flags} {
		out = binary.LittleEndian.AppendUint32(out, v)
	}
	for _, v := range []uint64{l.arena, b.Epoch, b.Step, index} {
		out = binary.LittleEndian.AppendUint64(out, v)
	}
	for k := range columns {
		out = encodePlace(out, &columns[k])
	}
	return out
}

func encodePlace(out []byte, p *node.Place) []byte {
	for _, v := range []uint64{p.Data, p.Need, p.Offsets, p.Shape, p.Valid, uint64(p.Dims)} {
		out = binary.LittleEndian.AppendUint64(out, v)
	}
	return out
}
