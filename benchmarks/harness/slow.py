"""Stores: the folder on memory as it is, or shown slowly by `slowfs`, which tells whether it kept its promise."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.place import BENCHMARKS, MeasureError, Place

VOID = 1.05  # a run whose emulator waited this much longer than it wanted says nothing
PRIORITY = 5


@dataclass(frozen=True)
class Store:
    """A kind of storage.

    Attributes:
        name: In rows' names.
        words: What it is.
        flags: Of `slowfs`; none: the folder as it is.
    """

    name: str
    words: str
    flags: tuple[str, ...] = ()

    @property
    def slow(self) -> bool:
        """Whether it is emulated."""
        return bool(self.flags)


HOT = Store("hot", "all data in the page cache")
PARALLEL = Store(
    "parallel", "emulated parallel file system: 2 ms an open, 2 ms a jump, 200 MB/s",
    ("-open", "2ms", "-jump", "2ms", "-rate", "200"),
)  # fmt: skip
DISK = Store("disk", "emulated disk: 8 ms a jump, one at a time, 150 MB/s", ("-seek", "8ms", "-rate", "150"))
METADATA = Store(
    "metadata", "emulated slow metadata: 1 ms an open, 1,000 of them a second", ("-open", "1ms", "-opens", "1000")
)  # fmt: skip
SEEDS = Store("seeds", "emulated: 4 ms a read, 100 MB/s", ("-jump", "4ms", "-rate", "100"))
STORES = (HOT, PARALLEL, DISK, METADATA)


class Emulator:
    """A folder shown as a slow store while entered. Its pages are cached, but each one starts without any.

    Raises:
        MeasureError: This machine can't; the message says why.
    """

    def __init__(self, place: Place, store: Store, folder: Path) -> None:
        self._place, self._store, self._folder = place, store, folder
        self.path = place.disk / f"slow-{store.name}"

    def __enter__(self) -> Emulator:
        program = built(self._place)
        self.path.mkdir(exist_ok=True)
        command = [str(program), "-from", str(self._folder), "-at", str(self.path), *self._store.flags]
        self._child = self._place.begin(command, before=_first)
        if self._line() != "ready":
            raise MeasureError(f"slowfs: {self._place.last_words(self._child)}")
        return self

    def look(self) -> dict[str, float]:
        """Return what it did since the last look, and `off`: how much longer it waited than it wanted, 1 is right."""
        self._child.stdin.write("look\n")
        self._child.stdin.flush()
        found: dict[str, Any] = json.loads(self._line())
        found["off"] = found["got_s"] / found["want_s"] if found["want_s"] else 1.0
        return found

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.stdin.close()
        try:
            self._child.wait(10)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        if os.path.ismount(self.path):
            subprocess.run(["umount", "-l", str(self.path)], check=False)
        self._place.ended(self._child)

    def _line(self) -> str:
        return str(self._child.stdout.readline()).strip()


def missing() -> str:
    """Return why nothing can be emulated here, or nothing."""
    if not os.access("/dev/fuse", os.W_OK):
        return "needs /dev/fuse"
    return "" if os.geteuid() == 0 else "needs root, to mount"


def built(place: Place) -> Path:
    """Return the program, built when first asked for."""
    if missing():
        raise MeasureError(missing())
    program = place.disk / "slowfs"
    if not program.exists():
        command = ["go", "build", "-o", str(program), "."]
        try:
            done = subprocess.run(
                command, cwd=BENCHMARKS / "harness" / "slowfs", capture_output=True, text=True, check=False
            )
        except FileNotFoundError:
            raise MeasureError("go is not on PATH") from None
        if done.returncode:
            raise MeasureError(f"slowfs can't be built: {(done.stderr.strip() or 'no words').splitlines()[-1]}")
    return program


def _first() -> None:
    """Run before all others: what comes late because others compute is not the store's slowness."""
    with contextlib.suppress(PermissionError):  # runs in which it came late are void
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
