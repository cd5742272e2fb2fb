"""A connection to an engine process: a socket, no library.

So that it works in any process: in a forked child of a process that has the library, where the library does not.

A `Connection` is used by one process. It carries one request at a time, and beside them RELEASE messages, which
finalisers send from any thread and at any moment, so they never wait for a lock. Where the engine has slots enough, one
RELEASE waits for the next request to take it along: to wake the engine for it costs both as much as a request does.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

from redox import engine, errors, wire

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Answered", "Connection", "Gone"]

_RELEASE = wire.HEAD.size + wire.RELEASE.size  # bytes of a RELEASE

_all: weakref.WeakSet[Connection] = weakref.WeakSet()


class Gone(Exception):  # noqa: N818 - not an error: whoever meets it tries again
    """The engine ended before it answered the first message."""


class Connection:
    """One connection to an engine. Closed with its last user."""

    def __init__(self, sock: socket.socket, name: bytes, log: int | None) -> None:
        self.name, self.pid, self.instance = name, 0, 0
        self._sock, self._log = sock, log
        self._aside = sock.dup()  # for messages that must never wait
        self._aside.setblocking(False)
        self._lock = threading.Lock()
        self._number = 0
        self._owner = os.getpid()
        self._unsent: list[bytes] = []  # RELEASEs
        self._prompt = False  # whether no request will come to take them along
        self._buffer = bytearray(wire.MAX)
        self._dead: Exception | None = None
        self.arenas: list[object] = []  # mapped, as long as this connection
        _all.add(self)

    # ---- requests ------------------------------------------------------------------------------------------------

    def request(
        self, kind: int, body: bytes = b"", *, expect: int, timeout_s: float, file: int | None = None
    ) -> tuple[bytes, int | None]:
        """Send a request and return the body of its answer, and the file with it.

        Args:
            kind: Of the request.
            body: Of the request.
            expect: Kind of the answer.
            timeout_s: How long the engine may take.
            file: Goes with the request.

        Raises:
            EngineError: The engine is gone.
            StallError: It does not answer.
            Exception: What the engine answers instead.
        """
        with self._lock:
            if self._dead is not None:
                raise self._dead
            self._number = (self._number + 1) & 0xFFFFFFFF
            try:
                self._sock.settimeout(timeout_s)
                self._send(wire.HEAD.pack(kind, wire.VERSION, 0, self._number) + body, file)
                answer, reply, received = self._receive()
            except TimeoutError:
                raise self._stalled(timeout_s) from None
            except OSError as error:
                raise self._lost(error) from None
        if answer == expect:
            return reply, received
        if received is not None:
            os.close(received)
        if answer == wire.FAILED:
            raise _failure(reply)
        raise Answered(answer)

    def _send(self, message: bytes, file: int | None) -> None:
        releases = self._taken(wire.MAX - len(message))
        try:
            packet = b"".join(releases) + message
            if file is None:
                self._sock.send(packet)
            else:
                socket.send_fds(self._sock, [packet], [file])
        except BaseException:  # Ctrl-C, too: the engine ignores what is given back twice
            self._unsent += releases
            raise

    def _receive(self) -> tuple[int, bytes, int | None]:
        while True:
            size, ancillary, _, _ = self._sock.recvmsg_into([self._buffer], socket.CMSG_SPACE(4))
            file = _file_of(ancillary)
            if size < wire.HEAD.size:
                raise ConnectionResetError
            kind, _, _, number = wire.HEAD.unpack_from(self._buffer)
            body = bytes(memoryview(self._buffer)[wire.HEAD.size : size])
            if number == self._number:
                return kind, body, file
            # The answer to a request that was interrupted: what came with it goes back.
            if file is not None:
                os.close(file)
            if kind == wire.BATCH_:
                slot, generation = wire.CLAIM.unpack_from(body)
                self.release(slot, generation, 0)

    def release(self, slot: int, generation: int, tickets: int, *, patient: bool = False) -> None:
        """Give a batch back. Never waits, never raises: for finalisers.

        Args:
            slot: Where it lies.
            generation: Of the slot.
            tickets: Given to other processes, less those taken from them.
            patient: The next request may take this along.
        """
        if self._owner != os.getpid() or self._dead is not None:
            return
        body = wire.RELEASE.pack(slot, generation, tickets)
        self._unsent.append(wire.HEAD.pack(wire.RELEASE_, wire.VERSION, 0, 0) + body)
        if self._prompt or not patient or len(self._unsent) > 1:
            self._release_all()

    def _taken(self, room: int = wire.MAX) -> list[bytes]:
        """Return RELEASEs that are sent by whoever takes them, in so many bytes at most."""
        taken: list[bytes] = []
        with contextlib.suppress(IndexError):  # another thread has taken the last
            while self._unsent and (len(taken) + 1) * _RELEASE <= room:
                taken.append(self._unsent.pop())
        return taken

    def _release_all(self) -> None:
        while releases := self._taken():
            try:
                self._aside.send(b"".join(releases))
            except OSError:  # full: with the next request
                self._unsent += releases
                return

    def quicken(self) -> None:
        """Send what is given back at once from now on: no request, or none for long, will follow."""
        self._prompt = True
        if self.alive:
            self._release_all()

    def say(self, kind: int) -> None:
        """Send a message that has no body and no answer, if that is possible. Never waits: for finalisers.

        BYE: this process needs nothing more of the engine than what it holds. LEAVE: the same of the pass.
        """
        self.quicken()
        if self.alive:
            with contextlib.suppress(OSError):
                self._aside.send(wire.HEAD.pack(kind, wire.VERSION, 0, 0))

    # ---- the end -------------------------------------------------------------------------------------------------

    def _lost(self, error: OSError) -> Exception:
        words = engine.words_of(self._log)
        who = f"the engine process {self.pid}" if self.pid else "the engine process"
        message = f"{who} has ended ({error.strerror or 'connection closed'})"
        self.close(errors.EngineError(message + (f"; its last words: {words}" if words else "")))
        assert self._dead is not None
        return self._dead

    def _stalled(self, timeout_s: float) -> Exception:
        stall = errors.StallError(
            f"the engine process {self.pid} has not answered for {timeout_s:.0f} s: it is stopped, or storage stands "
            "still"
        )
        self.close(stall)
        return stall

    def close(self, why: Exception | None = None) -> None:
        """End the connection; requests from now on raise `why`."""
        if self._dead is None:
            if self._unsent and self.alive:
                self._release_all()
            self._dead = why or errors.EngineError("the connection to the engine is closed")
            self._sock.close()
            self._aside.close()
            if self._log is not None:
                os.close(self._log)
                self._log = None

    def __del__(self, _finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if _finalizing():  # modules are being taken apart, and the engine sees the end of the process
            self._unsent.clear()
        self.close()

    @property
    def alive(self) -> bool:
        """Whether requests can be made, in this process."""
        return self._dead is None and self._owner == os.getpid()

    def hung_up(self) -> bool:
        """Whether the engine has gone since the last request."""
        try:
            return not self._aside.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def greet(self, greeting: dict[str, Any], timeout_s: float, file: int | None) -> None:
        """Make the first request.

        Raises:
            Gone: The engine was about to end.
        """
        body = json.dumps(greeting).encode()
        try:
            reply, log = self.request(wire.HELLO, body, expect=wire.WELCOME, timeout_s=timeout_s, file=file)
        except errors.EngineError:
            if self._dead is None:
                raise
            raise Gone(str(self._dead)) from None
        self.pid, self.instance = wire.WELCOMED.unpack_from(reply)
        if self._log is None:
            self._log = log
        elif log is not None:
            os.close(log)


class Answered(errors.EngineError):
    """The engine answered something else than was expected."""

    def __init__(self, kind: int) -> None:
        super().__init__(f"the engine answered with a message of kind {kind}")
        self.kind = kind


def _file_of(ancillary: list[Any]) -> int | None:
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS and len(data) >= 4:
            return int(struct.unpack_from("i", data)[0])
    return None


def _failure(report: bytes) -> Exception:
    from redox._library import described

    return described(json.loads(report))


def _orphan() -> None:
    """In a forked child: the connections are the parent's, and must end with it."""
    for connection in list(_all):
        connection._dead = errors.ForkError("the connection belongs to the parent process")
        connection._sock.close()
        connection._aside.close()


os.register_at_fork(after_in_child=_orphan)
