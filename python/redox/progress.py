"""Progress: a bar on a terminal, nothing in a pipe, or the caller's function."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

Callback = Callable[[int, "int | None"], object]

_EVERY_S = 0.1


class Progress:
    """Tells how far some work is.

    Args:
        wanted: a function of (done, total or None); True for a bar; False for nothing; None for a bar if `stream` is a
            terminal.
        label: what the bar is of.
        stream: where the bar goes, standard error by default.
    """

    def __init__(self, wanted: Callback | bool | None, label: str, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._label = label
        self._callback: Callback | None = None
        if callable(wanted):
            self._callback = wanted
        elif not (wanted is None or isinstance(wanted, bool)):
            raise ValueError(f"progress={wanted!r}: expected a function of (done, total), True, False or None")
        elif wanted or (wanted is None and self._stream is not None and self._stream.isatty()):
            self._callback = self._draw
        self._started = self._shown_at = time.monotonic()
        self._last: tuple[int, int | None] | None = None
        self._drawn = False

    def __call__(self, done: int, total: int | None) -> None:
        """Reports; passes on at most ten times a second."""
        self._last = (done, total)
        now = time.monotonic()
        if self._callback is not None and now - self._shown_at >= _EVERY_S:
            self._shown_at = now
            self._callback(done, total)

    def close(self) -> None:
        """Reports the last state and ends the bar's line."""
        if self._callback is not None and self._last is not None:
            self._callback(*self._last)
        if self._drawn:
            self._stream.write("\n")
            self._stream.flush()
        self._callback = None

    def _draw(self, done: int, total: int | None) -> None:
        rate = done / max(1e-9, time.monotonic() - self._started)
        text = f"{self._label} {done:,}"
        if total:
            part = min(1.0, done / total)
            bar = "#" * int(24 * part)
            text = f"{self._label} [{bar:<24}] {part:4.0%} {done:,} of {total:,}"
        self._stream.write(f"\r{text}, {rate:,.0f}/s\x1b[K")
        self._stream.flush()
        self._drawn = True
