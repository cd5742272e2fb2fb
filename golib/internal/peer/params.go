package peer

import "time"

// Every number that was chosen rather than derived.
const (
	// dialFirst and dialMost bound the pause between two attempts to connect; it doubles from one to the other.
	dialFirst = 50 * time.Millisecond
	dialMost  = time.Second
	// handshakeTime bounds one attempt, up to the HELLO of the other side.
	handshakeTime = 5 * time.Second
	// idleTime without a packet is a peer's death; it is noticed within 0.4 s more. Packets are sent every aliveTime.
	idleTime  = 2 * time.Second
	aliveTime = 500 * time.Millisecond

	// strangeTime is how long a key that does not fit its card may be the key of a restarted node whose new card is on
	// its way. Only then does it count as a refusal.
	strangeTime = 3 * time.Second
	// barredTime is how long a peer that broke the protocol is refused.
	barredTime = 10 * time.Second

	// controlPause lets credit gather between two writes to the control stream.
	controlPause = 500 * time.Microsecond
	// controlRate and controlBurst bound the control messages of one connection: what a peer that keeps the pauses can
	// never reach, and what costs a few per cent of a processor at most.
	controlRate  = 50_000 // a second
	controlBurst = 100_000
	// outboxMost bounds what waits to be written on a control stream. A peer that reads nothing for so long is cut.
	outboxMost = 4 << 20

	// windowMost is the largest QUIC window of one connection, enough for 10 Gbit/s at 6 ms; windowLeast the smallest
	// with which it is worth to connect.
	windowMost  = 12 << 20
	windowLeast = 64 << 10

	// batchBytes and batchSamples bound what the pusher takes from a queue at once, and so what Shed cannot take back.
	batchBytes   = 64 << 10
	batchSamples = 64
	// pieceSize is how much of a stream is read at once: the memory of an open stream beyond the lane's ring.
	pieceSize = 32 << 10
	// streamPause is how long a pusher waits when the peer allows no more streams.
	streamPause = 20 * time.Millisecond

	// lanesMost is how many lanes each rank of a peer may have announced that are not open here; leftMost how many closed
	// lanes are remembered, so that those who still send to them are told.
	lanesMost = 64
	leftMost  = 256

	// strangersRate is how many handshakes a second are begun with one address before it must show that it can read what
	// is sent to it, and handshakesMost how many with all of them; beyond, strangers are refused before any cryptography.
	strangersRate  = 20
	handshakesMost = 200

	// flushTime bounds how long Close waits for what is queued and credited, goodbyeTime for the peers to have read it.
	flushTime   = time.Second
	goodbyeTime = 500 * time.Millisecond
)
