package attach

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/redox-loader/redox/golib/internal/fault"
)

// client is one connection: a worker's or a rank's for one pass, or a process's own for claims and questions.
type client struct {
	server  *Server
	conn    *net.UnixConn
	pid     int
	trainer *trainer // of HELLO; nil before
	rank    int
	pass    *pass
	worker  int
	made    int64 // bytes of results since the latest NEXT or READ; guarded by server.mu
	reads   int   // how many workers read by number, this one among them; 0: it has not; guarded by server.mu
	meets   bool  // it has the turn to meet the other nodes; guarded by server.mu
	asks    asking
	gone    chan struct{}
	left    bool // guarded by server.mu
	sending sync.Mutex
}

// greeting is the body of HELLO.
type greeting struct {
	Trainer int             `json:"trainer"` // pid
	Rank    int             `json:"rank"`
	Timeout float64         `json:"timeout"` // seconds
	Options json.RawMessage `json:"options"`
}

// answer is what a request gets. file, if not 0, goes with it.
type answer struct {
	kind kind
	body []byte
	file uintptr
}

// serve reads a connection's messages until it ends.
func (s *Server) serve(conn *net.UnixConn) {
	defer conn.Close()
	pid, ok := ours(conn)
	if !ok {
		return
	}
	c := &client{server: s, conn: conn, pid: pid, gone: make(chan struct{})}
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return
	}
	s.clients[c] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.forget(c)
	}()
	buf, oob := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4))
	for {
		n, oobn, flags, _, err := conn.ReadMsgUnix(buf, oob)
		if err != nil || flags&unix.MSG_TRUNC != 0 {
			return
		}
		packet := buf[:n]
		for len(packet) > releaseSize && kind(packet[0]) == release && packet[1] == version {
			c.handle(message{kind: release, body: packet[headSize:releaseSize]}, nil)
			packet = packet[releaseSize:]
		}
		m, err := parse(packet)
		switch {
		case err != nil:
			c.send(m.number, answer{kind: failed, body: encodeError(err)})
			return
		case m.kind == release || m.kind == claim || m.kind == allocate:
			c.handle(m, nil) // quick, and release must not wait for a NEXT that waits for it
		case m.kind == bye:
			s.mu.Lock()
			if c.trainer != nil {
				c.trainer.bye = true
			}
			s.mu.Unlock()
		case m.kind == leave:
			s.mu.Lock()
			if c.pass != nil {
				c.pass.leave(c)
			}
			s.mu.Unlock()
		case m.kind == next && c.prompt(m):
		default:
			m.body = append([]byte(nil), m.body...)
			go c.handle(m, received(oob[:oobn]))
		}
	}
}

// prompt answers NEXT at once if that takes no waiting: waking another goroutine costs as much as the rest of it.
func (c *client) prompt(m message) (over bool) {
	c.answer(m, func() (answer, error) {
		r := reader{body: m.body}
		number := r.u64()
		if r.err() != nil {
			return answer{}, errLater
		}
		l, copied, err := c.server.prompt(c, number)
		over = err != errLater
		return c.batch(l, copied, err)
	})
	return over
}

// ours says whether the process at the other end is of this user, and which one it is.
func ours(conn *net.UnixConn) (pid int, is bool) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, false
	}
	var cred *unix.Ucred
	if raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }) != nil {
		return 0, false
	}
	if err != nil || cred.Uid != uint32(os.Getuid()) {
		return 0, false
	}
	return int(cred.Pid), true
}

// received is the file that came with a message, or nil.
func received(oob []byte) *os.File {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range messages {
		if fds, err := unix.ParseUnixRights(&messages[i]); err == nil && len(fds) > 0 {
			return os.NewFile(uintptr(fds[0]), "subset")
		}
	}
	return nil
}

// forget ends a client's holds and its part in a pass. mu is held.
func (s *Server) forget(c *client) {
	if c.left {
		return
	}
	c.left = true
	close(c.gone)
	delete(s.clients, c)
	trainers := c.pass == nil && c.reads == 0 || c.pass != nil && c.pass.workers == 1 && c.pass.key.base == noBase
	for _, l := range s.loans.all {
		if l == nil || !slices.Contains(l.holders, c) {
			continue
		}
		for l.drop(c) {
			l.orphan = l.orphan || !trainers
		}
		s.settle(l)
	}
	if c.pass != nil {
		c.pass.leave(c)
	}
	c.giveTurn()
	s.farewell(c.trainer)
}

// noBase is the seed in the key of a pass that the trainer makes itself.
const noBase = ^uint64(0)

// handle answers one message.
func (c *client) handle(m message, file *os.File) {
	if file != nil {
		defer file.Close()
	}
	c.answer(m, func() (answer, error) { return c.dispatch(m, file) })
}

// errLater: there is no answer yet.
var errLater = errors.New("later")

// answer sends what comes of a request, unless that is nothing.
func (c *client) answer(m message, do func() (answer, error)) {
	var a answer
	err := func() (err error) {
		defer func() {
			if v := recover(); v != nil {
				c.server.Log("error", fmt.Sprintf("internal error: %v\n%s", v, debug.Stack()))
				err = fault.New(fault.Internal, "internal error of the engine: %v", v)
			}
		}()
		a, err = do()
		return err
	}()
	if m.kind == release || err == errLater {
		return
	}
	if err != nil {
		if fault.KindOf(err) == fault.EndOfEpoch {
			a = answer{kind: ended}
		} else {
			a = answer{kind: failed, body: encodeError(err)}
		}
	}
	c.send(m.number, a)
}

func (c *client) send(number uint32, a answer) {
	var oob []byte
	if a.file != 0 {
		oob = unix.UnixRights(int(a.file))
	}
	b := message{kind: a.kind, number: number, body: a.body}.append(make([]byte, 0, headSize+len(a.body)))
	c.sending.Lock()
	defer c.sending.Unlock()
	// A client that does not read its answers hurts itself: its wait for them ends the connection.
	_ = c.conn.SetWriteDeadline(time.Now().Add(time.Minute))
	if _, _, err := c.conn.WriteMsgUnix(b, oob, nil); err != nil {
		c.conn.Close()
	}
}
