"""The engine processes of this user that run on this machine, and what each does: for those who look.

An engine is known by its socket's name alone. Asking it what it does (LOOK) needs no trainer, is none, and keeps no
engine alive. Iterations without worker processes in a single rank have no engine process: their counters are in
`stats()` of the training process alone.
"""

from __future__ import annotations

import json
import os
import re
import socket
from typing import Any

from redox import errors, wire
from redox.client import reach
from redox.connection import Connection

__all__ = ["look", "running"]

_SOCKETS = "/proc/net/unix"
_NAME = re.compile(r"@(redox-[0-9a-f]{32}(?:-\d+)?)$")
_LISTENS, _SEQPACKET = 0x10000, 5
_ANSWER_S = 1.0


def running() -> dict[bytes, int]:
    """Return the names of engines' sockets in this network namespace, of any user, with their inodes."""
    found = {}
    with open(_SOCKETS, encoding="utf-8", errors="replace") as file:
        next(file)
        for line in file:
            words = line.split(maxsplit=7)
            name = _NAME.match(words[7].rstrip("\n")) if len(words) == 8 else None
            if name and int(words[3], 16) & _LISTENS and int(words[4], 16) == _SEQPACKET:
                found[name[1].encode()] = int(words[6])
    return found


def look(name: bytes, inode: int) -> dict[str, Any] | None:
    """Return what an engine does, as docs/attached.md has it; None if it is gone, or another user's.

    One that does not answer is told as `{"pid": ..., "silent": true}`: it is stopped, or of another release.

    Args:
        name: Of its socket.
        inode: Of its socket.
    """
    try:
        sock = reach(name, _ANSWER_S)
    except OSError:
        return {"pid": _owner(inode), "silent": True}
    if not isinstance(sock, socket.socket):
        return None
    connection = Connection(sock, name, None)
    try:
        body, _ = connection.request(wire.LOOK, expect=wire.TEXT, timeout_s=_ANSWER_S)
    except errors.StallError:
        return {"pid": _owner(inode), "silent": True}
    except errors.EngineError:
        return None
    except ValueError:  # it has answered, but not this: an older release
        return {"pid": _owner(inode), "silent": True}
    finally:
        connection.close()
    return dict(json.loads(body))


def _owner(inode: int) -> int | None:
    """Return the process of this user that has a socket."""
    wanted = f"socket:[{inode}]"
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            files = os.listdir(f"/proc/{entry}/fd")
        except OSError:
            continue
        for file in files:
            try:
                if os.readlink(f"/proc/{entry}/fd/{file}") == wanted:
                    return int(entry)
            except OSError:
                continue
    return None
