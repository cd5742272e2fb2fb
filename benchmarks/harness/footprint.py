"""Rows of what the loader costs beside time: memory as seen from outside, import, chunks before the first batch."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from harness.data import DATA_BYTES, SMALL, write_redox
from harness.place import MeasureError, Place
from harness.speed import fitting_window
from harness.table import Row, absolute, skipped
from harness.tree import pss

NAMES = ("memory", "resident", "import", "first-batch")
LIMIT = DATA_BYTES // 20
BATCH = 64
MIB = 1 << 20


def measure(place: Place, names: set[str], rounds: int) -> list[Row]:
    """Return the chosen rows."""
    rows: list[Row] = []
    parts: dict[str, Callable[[], list[Row]]] = {
        "memory": lambda: _memory(place, path, rounds),
        "import": lambda: [_import(place, max(5, rounds))],
        "first-batch": lambda: [_first_batch(place, path)],
    }
    path = place.hot / "footprint.redox"
    if names & {"memory", "resident", "first-batch"}:
        write_redox(SMALL, path, SMALL.samples)
    try:
        for name, part in parts.items():
            if name not in names and not (name == "memory" and "resident" in names):
                continue
            try:
                rows += [row for row in part() if row.name in names]
            except MeasureError as error:
                rows.append(skipped(name, "", str(error)))
    finally:
        shutil.rmtree(path, ignore_errors=True)
    return rows


# ---- memory -----------------------------------------------------------------------------------------------------


def _memory(place: Place, path: Path, rounds: int) -> list[Row]:
    window = fitting_window(place, str(path), BATCH, LIMIT)
    above, resident = [], []
    for _ in range(rounds):
        child = place.start("harness.footprint.load", path=str(path), memory_limit=LIMIT, window=window)
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        # The share of libraries that others have mapped, too, changes when those end: what PyTorch brings is left out.
        libraries = {name for name in pss(child.pid) if name.startswith("/")}
        before = peak = _bytes(child.pid, libraries)
        child.stdin.write("go\n")
        child.stdin.flush()
        while child.poll() is None:
            peak = max(peak, _bytes(child.pid, libraries))
            time.sleep(0.005)
        if child.returncode:
            raise MeasureError(f"the process whose memory is measured failed: {place.last_words(child)}")
        above.append((peak - before) / MIB)
        resident.append(float(child.stdout.read()) / MIB)
        place.ended(child)
    limit = LIMIT / MIB
    note = f"memory_limit {limit:.1f} MiB, data {DATA_BYTES // LIMIT} times that, window {window}, two epochs"
    return [
        absolute("memory", above, "MiB PSS", f"<= {limit + 64:.1f}", limit + 64, note),
        absolute("resident", resident, "MiB", f"<= {limit:.1f}", limit, note),
    ]


def _bytes(process: int, without: Collection[str]) -> int:
    return sum(size for name, size in pss(process).items() if name not in without)


def load(path: str, memory_limit: int, window: int | None) -> None:
    """In the child: import, say so, wait, then load two epochs and print the peak of resident bytes."""
    import redox
    import torch  # noqa: F401  (part of the baseline)

    ds = redox.RedoxDataset(path, batch_size=BATCH, batched=True, memory_limit=memory_limit, window=window)
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(2):
        for _ in ds:
            pass
    print(ds.stats()["total"]["resident_peak"], flush=True)


# ---- import, first batch -------------------------------------------------------------------------------------------


def _import(place: Place, rounds: int) -> Row:
    values = [place.child("harness.footprint.importing")["ms"] for _ in range(rounds)]
    return absolute("import", values, "ms", "< 50", 50, "import redox, then redox.open and the library, after numpy")


def importing() -> dict[str, float]:
    """In the child: import Redox after numpy, down to the loaded library."""
    import numpy  # noqa: F401

    begin = time.perf_counter()
    import redox
    from redox import _library

    _ = redox.open
    lazy = time.perf_counter() - begin
    _library.load()
    return {"ms": 1e3 * (time.perf_counter() - begin), "lazy_ms": 1e3 * lazy}


def _first_batch(place: Place, path: Path) -> Row:
    found = place.child("harness.footprint.first", path=str(path))
    bound = found["at_most"]
    note = (
        f"planned; window {found['window']}, the ramp opens up to {found['ramp']} during a global batch; read ahead "
        f"included, {found['chunks_read']} were read when it came, after {found['seconds'] * 1e3:.0f} ms"
    )
    return absolute("first-batch", [found["loads"]], "chunks", f"<= {bound}", bound, note)


def first(path: str) -> dict[str, Any]:
    """In the child: count the chunks that the first batch waits for."""
    import redox

    batch, window = SMALL.batch, 64
    report = redox.simulate(path, batch_size=batch, window=window)
    ds = redox.RedoxDataset(path, batch_size=batch, batched=True, window=window)
    begin = time.perf_counter()
    next(iter(ds))
    seconds = time.perf_counter() - begin
    info = redox.open(path).info
    # At least window/8 partitions take part, so a batch lasts no more than so many rounds; see docs/plan.md.
    rounds = batch // (window // 8) + 1
    ramp = rounds * 2 * report.partitions * info.chunks // info.samples
    return {
        "loads": report.first_batch_loads, "window": window, "ramp": ramp, "at_most": window // 8 + 2 + ramp,
        "chunks_read": ds.stats()["total"]["chunks_read"], "seconds": seconds,
    }  # fmt: skip
