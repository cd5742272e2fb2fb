"""The core's log lines and Python's `redox` logger."""

from __future__ import annotations

import json
import logging

__all__ = ["hand_on", "messages"]

_LEVELS = {
    "debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR
}  # fmt: skip
_log = logging.getLogger("redox")


def hand_on(lines: bytes) -> None:
    """Hand lines of the core's log, one JSON object each, to the `redox` logger."""
    for line in lines.splitlines():  # JSON escapes what splits bytes
        entry = json.loads(line)
        _log.log(_LEVELS.get(entry.get("level"), logging.INFO), "%s", entry.get("message", ""))


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
