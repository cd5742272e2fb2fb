"""The core's log lines and Python's `redox` logger."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from typing import TYPE_CHECKING

from redox import errors, wire

if TYPE_CHECKING:
    from redox.connection import Connection

__all__ = ["follow", "hand_on", "messages"]

_LEVELS = {
    "debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR
}  # fmt: skip
_log = logging.getLogger("redox")


def hand_on(lines: bytes) -> None:
    """Hand lines of the core's log, one JSON object each, to the `redox` logger."""
    for line in lines.splitlines():  # JSON escapes what splits bytes
        entry = json.loads(line)
        _log.log(_LEVELS.get(entry.get("level"), logging.INFO), "%s", entry.get("message", ""))


_followed = 0.0  # when this process asked for lines of an engine's log
_FOLLOW_S = 1.0  # how often it does
_ANSWER_S = 30.0  # for what the engine answers at once


def follow(connection: Connection, *, urgent: bool = False) -> None:
    """Hand the engine's log to the `redox` logger, unless that was done just now or another process does it.

    Args:
        connection: To the engine.
        urgent: Whether something has gone wrong, so that the next batch would be too late.
    """
    global _followed  # noqa: PLW0603 - a clock for the whole process
    now = time.monotonic()
    if (now - _followed < _FOLLOW_S and not urgent) or not connection.alive:
        return
    _followed = now
    with contextlib.suppress(OSError, errors.Error):
        body = wire.URGENT.pack(urgent)
        lines, _ = connection.request(wire.LINES, body, expect=wire.TEXT, timeout_s=_ANSWER_S)
        hand_on(lines)


def messages(text: str) -> list[str]:
    """Return what a log file says, a line each: the core's lines, and what else a process writes as it dies."""
    said = []
    for raw in text.split("\n"):  # what else splits lines may be in them
        try:
            entry = json.loads(raw)
        except ValueError:
            entry = None
        line = raw
        if isinstance(entry, dict):
            line = f"{entry.get('level', 'info')}: {entry.get('message', '')}".split("\n")[0]
        if line.strip():
            said.append(line)
    return said
