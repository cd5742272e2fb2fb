"""What a client sends to an engine: requests, and what it gives back along with them."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from redox import wire
from redox.connection import Connection

RELEASE = wire.HEAD.size + wire.RELEASE.size


@pytest.fixture
def ends() -> Any:
    """A client's connection, and the engine's end of it."""
    mine, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    other.settimeout(5)
    connection = Connection(mine, b"test", None)
    yield connection, other
    connection.close()
    other.close()


def ask(connection: Connection, body: bytes = b"") -> None:
    """Make a request that nobody answers."""
    with pytest.raises(TimeoutError):
        connection.request(wire.STATUS, body, expect=wire.TEXT, timeout_s=0.05)


def slots(packet: bytes) -> list[int]:
    """The slots that the RELEASEs at the beginning of a packet give back."""
    found = []
    while len(packet) >= RELEASE and wire.HEAD.unpack_from(packet)[0] == wire.RELEASE_:
        found.append(wire.RELEASE.unpack_from(packet, wire.HEAD.size)[0])
        packet = packet[RELEASE:]
    return found


def test_a_patient_release_travels_with_the_next_request(ends: Any) -> None:
    connection, engine = ends
    connection.release(7, 1, 0, patient=True)
    ask(connection)
    packet = engine.recv(wire.MAX)
    assert slots(packet) == [7]
    assert wire.HEAD.unpack_from(packet, RELEASE)[0] == wire.STATUS


@pytest.mark.parametrize("second", [True, False])
def test_a_second_release_waits_for_nobody(ends: Any, second: bool) -> None:
    connection, engine = ends
    connection.release(1, 1, 0, patient=True)
    connection.release(2, 1, 0, patient=second)
    assert sorted(slots(engine.recv(wire.MAX))) == [1, 2]


@pytest.mark.parametrize("end", ["say", "close"])
def test_nothing_is_kept_at_the_end(ends: Any, end: str) -> None:
    connection, engine = ends
    connection.release(3, 1, 0, patient=True)
    connection.say(wire.BYE) if end == "say" else connection.close()
    assert slots(engine.recv(wire.MAX)) == [3]


def test_a_large_request_takes_along_what_fits(ends: Any) -> None:
    connection, engine = ends
    connection.release(4, 1, 0, patient=True)
    ask(connection, bytes(wire.MAX - wire.HEAD.size - RELEASE + 1))
    packet = engine.recv(2 * wire.MAX)
    assert (len(packet), slots(packet)) == (wire.MAX - RELEASE + 1, [])
    assert slots(engine.recv(wire.MAX)) == [4]  # with the end of the connection, which nobody answered


def test_ctrl_c_loses_nothing(ends: Any) -> None:
    connection, engine = ends
    connection.release(5, 1, 0, patient=True)

    class Interrupted:
        """A socket on which Ctrl-C falls into send."""

        def __init__(self, sock: socket.socket) -> None:
            self.sock = sock

        def send(self, _: bytes) -> int:
            raise KeyboardInterrupt

        def __getattr__(self, name: str) -> Any:
            return getattr(self.sock, name)

    connection._sock = Interrupted(connection._sock)
    with pytest.raises(KeyboardInterrupt):
        connection.request(wire.STATUS, expect=wire.TEXT, timeout_s=1)
    connection._sock = connection._sock.sock
    ask(connection)
    assert slots(engine.recv(wire.MAX)) == [5]
