"""Rows of packing: a tree of files, packed and copied in turn on the same disk."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from harness.place import MeasureError, Place
from harness.table import Row, compare, skipped

NAMES = ("pack-hot", "pack-cold")
TARGET = 0.5
SMALLEST, LARGEST = 3_000, 17_000  # bytes of a file


def measure(place: Place, names: set[str], rounds: int, quick: bool) -> list[Row]:
    """Return the chosen rows."""
    root = place.disk / "tree"
    files = 5_000 if quick else 20_000
    _write_tree(root, files)
    rows = []
    for name in NAMES:
        if name not in names:
            continue
        cold = name == "pack-cold"
        if cold and os.geteuid() != 0:
            rows.append(skipped(name, f">= {TARGET:g} x", "only root can empty the page cache"))
            continue
        rows.append(_row(place, name, root, files, rounds, cold))
    shutil.rmtree(root)
    return rows


def _row(place: Place, name: str, root: Path, files: int, rounds: int, cold: bool) -> Row:
    pairs, durable = [], []
    for _ in range(rounds):
        pack = _timed(place, cold, lambda to: _pack(root, to, files))
        copy = _timed(place, cold, lambda to: subprocess.run(["cp", "-r", str(root), str(to)], check=True))
        synced = _timed(place, cold, lambda to: _copy_and_sync(root, to))
        pairs.append((files / pack, files / copy))
        durable.append(synced / pack)
    note = (
        f"{files:,} files of {SMALLEST} to {LARGEST} bytes; packing syncs: against cp and sync {median(durable):.2f} x"
    )
    return compare(name, pairs, "files/s", "cp -r", TARGET, note)


def _write_tree(root: Path, files: int) -> None:
    rng = random.Random(0)
    data = rng.randbytes(LARGEST)
    for label in range(20):
        (root / f"class{label:02d}").mkdir(parents=True)
    for number in range(files):
        size = rng.randrange(SMALLEST, LARGEST)
        (root / f"class{number % 20:02d}" / f"{number:06d}.bin").write_bytes(data[:size])


def _pack(root: Path, to: Path, files: int) -> None:
    import redox

    info = redox.pack(root, to, format="files", codec="none")
    if info.samples != files:
        raise MeasureError(f"{info.samples} of {files} files are packed")


def _copy_and_sync(root: Path, to: Path) -> None:
    subprocess.run(["cp", "-r", str(root), str(to)], check=True)
    subprocess.run(["sync", "-f", str(to)], check=True)


def _timed(place: Place, cold: bool, do: Callable[[Path], object]) -> float:
    """Return the seconds that writing a copy takes, on a disk without work left over from the one before."""
    to = place.disk / "copy"
    subprocess.run(["sync"], check=True)
    if cold:
        Path("/proc/sys/vm/drop_caches").write_text("3", encoding="ascii")
    begin = time.perf_counter()
    do(to)
    seconds = time.perf_counter() - begin
    shutil.rmtree(to)
    return seconds
