"""Finding the engine process that serves a data set, or starting it; and this process's own connection to each.

It works in any process: in a forked child of a process that has the library, where the library does not.
"""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, Any

from redox import engine, errors, wire
from redox.connection import Connection, Gone

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FOREIGN", "connect", "connection_to", "engine_name", "farewell", "find", "reach", "seen"]

_SUFFIXES = 16
_ATTEMPTS = 50  # of finding or starting an engine, while others come and go
_CREDENTIALS = struct.Struct("iII")
_ANSWER_S = 30.0  # for what the engine answers at once

_lock = threading.RLock()  # a data set that is collected meanwhile says farewell, in the same thread
_own: dict[tuple[bytes, int], Connection] = {}

# The latest epoch of an engine's batches that this process, or the one it was forked from, has seen since the user last
# said something about epochs: an engine that takes the place of one that died goes on from there.
seen: dict[bytes, int] = {}


def connection_to(name: bytes, rank: int) -> Connection | None:
    """Return this process's own connection to an engine; None if there is none, or none that serves anybody yet."""
    key = (name, rank)
    with _lock:
        connection = _own.get(key)
        if connection is None or not connection.alive or connection.hung_up():
            connection = find(name)
            if connection is None:
                return None
            try:
                connection.greet({"trainer": os.getpid(), "rank": rank}, _ANSWER_S, None)
            except Gone:
                return None
            except errors.EngineError:  # another rank, or a worker, has just started it, and not said for what yet
                if connection.alive:
                    return None
                raise
            _own[key] = connection
        return connection


def farewell(name: bytes, rank: int) -> None:
    """Let an engine know that this process needs nothing more of it than the batches that it holds."""
    try:
        connection = connection_to(name, rank)
    except (OSError, errors.Error):  # it is on its way out
        return
    if connection is not None:
        connection.say(wire.BYE)
        with _lock:
            _own.pop((name, rank), None)


def _forget() -> None:
    """In a forked child: what is here is the parent's."""
    global _lock  # noqa: PLW0603 - another thread of the parent may have held it
    _lock = threading.RLock()
    _own.clear()


os.register_at_fork(after_in_child=_forget)


# ---- finding and starting ----------------------------------------------------------------------------------------


def engine_name(*identity: object) -> bytes:
    """Return the name of the engine that serves this user, here, for what else tells engines apart."""
    parts = [os.getuid(), os.stat("/proc/self/ns/mnt").st_ino, *identity]
    return b"redox-" + hashlib.sha256(repr(parts).encode()).hexdigest()[:32].encode()


def find(name: bytes) -> Connection | None:
    """Return a new connection to this engine if it runs; nothing was said yet."""
    for suffix in range(_SUFFIXES):
        full = _suffixed(name, suffix)
        sock = reach(full)
        if sock is None:
            return None
        if sock is not FOREIGN:
            return Connection(sock, name, None)
    return None


def connect(
    name: bytes, greeting: dict[str, Any], timeout_s: float, about: str, file: Callable[[], int | None] = lambda: None
) -> Connection:
    """Return a new connection to an engine that has been greeted; start the engine if need be.

    Args:
        name: Of the engine.
        greeting: Says who this is, and what is to be served.
        timeout_s: How long the engine may take to open the data set.
        about: What is to be served, for those who list processes.
        file: Gives the file that goes with the greeting, or None.

    Raises:
        EngineError: There is no engine and none can be started.
    """
    words = ""
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(min(0.1, 0.002 * 2**attempt))
        connection = _attempt(name, about)
        if connection is None:
            continue
        try:
            connection.greet(greeting, timeout_s, file())
        except Gone as gone:
            words = str(gone)
            continue
        return connection
    raise errors.EngineError(
        f"no engine process could be started for {about}: {words or 'its socket is always in use'}"
    )


def _attempt(name: bytes, about: str) -> Connection | None:
    for suffix in range(_SUFFIXES):
        full = _suffixed(name, suffix)
        sock = reach(full)
        if sock is FOREIGN:
            continue
        if sock is not None:
            return Connection(sock, name, None)
        try:
            log = engine.start(full, about)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return None
            raise errors.EngineError(f"no engine process could be started for {about}: {error}") from error
        sock = reach(full)
        if sock is None or sock is FOREIGN:
            words = engine.words_of(log)
            os.close(log)
            raise errors.EngineError(f"the engine process for {about} ended as it started: {words or 'without a word'}")
        return Connection(sock, name, log)
    raise errors.EngineError(f"other users hold all {_SUFFIXES} names of the engine's socket")


def _suffixed(name: bytes, suffix: int) -> bytes:
    return name + (b"-%d" % suffix if suffix else b"")


FOREIGN: Any = object()  # the socket is another user's


def reach(full: bytes, timeout_s: float | None = None) -> Any:
    """Return a socket connected to a name; None if nobody listens there, FOREIGN if it is another user."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.settimeout(timeout_s)
        sock.connect(b"\0" + full)
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError as error:
        sock.close()
        if error.errno in (errno.ECONNREFUSED, errno.ENOENT):
            return None
        raise
    if _CREDENTIALS.unpack(credentials)[1] != os.getuid():
        sock.close()
        return FOREIGN
    return sock
