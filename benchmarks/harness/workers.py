"""Rows of worker processes and the engine that serves them: a client's processor time, an idle engine's, memory."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from harness import tree
from harness.data import DATA_BYTES, SMALL, write_redox
from harness.place import MeasureError, Place
from harness.speed import fitting_window
from harness.table import Row, absolute, skipped

MEMORY = {f"memory-workers-{workers}": workers for workers in (1, 2, 4)}
NAMES = ("client-cpu", "engine-idle", *MEMORY)
LIMIT = DATA_BYTES // 20
BATCH = 64  # where memory is measured
OVER = 64  # MiB, what all processes may take beyond the limit
MIB = 1 << 20
BATCHES = 2000  # that a client takes
SETTLE, IDLE = 3.0, 10.0  # seconds: until what was under way is done, and that are measured
LOADERS = ("redox", "torch")
_numbers = count()


def measure(place: Place, names: set[str], rounds: int, quick: bool) -> list[Row]:
    """Return the chosen rows."""
    rows: list[Row] = []
    path = place.hot / "workers.redox"
    parts: dict[str, Callable[[], Row]] = {
        "client-cpu": lambda: _client(place, path, rounds),
        "engine-idle": lambda: _idle(place, path, 1 if quick else rounds),
        **{name: lambda it=name: _memory(place, path, it, min(rounds, 2)) for name in MEMORY},  # type: ignore[misc]
    }
    write_redox(SMALL, path, SMALL.samples)
    try:
        for name, part in parts.items():
            if name in names:
                try:
                    rows.append(part())
                except MeasureError as error:
                    rows.append(skipped(name, "", str(error)))
    finally:
        shutil.rmtree(path, ignore_errors=True)
    return rows


def _loader(kind: str, path: str, workers: int, batch: int, **options: Any) -> Any:
    """Return redox's loader, or torch's own over samples."""
    import redox
    import torch

    ds = redox.RedoxDataset(path, batch_size=batch, **options)
    if kind == "redox":
        return redox.DataLoader(ds, num_workers=workers, persistent_workers=True)
    return torch.utils.data.DataLoader(ds, batch_size=batch, num_workers=workers, persistent_workers=True)


def _start(place: Place, way: str, **what: Any) -> tuple[subprocess.Popen[str], str]:
    """Start a child that says when it is ready, and return it with the name that all its processes carry."""
    name = f"workers-{next(_numbers)}"
    child = place.start(f"harness.workers.{way}", env={tree.VARIABLE: name}, **what)
    assert child.stdout is not None
    if child.stdout.readline().strip() != "ready":
        child.wait()
        words = place.last_words(child)
        place.ended(child)
        raise MeasureError(words)
    return child, name


def _go(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("go\n")
    child.stdin.flush()


def _stop() -> None:
    """In the child: say that it is ready, and wait for the word to go on."""
    print("ready", flush=True)
    sys.stdin.readline()


# ---- a client's processor time ----------------------------------------------------------------------------------


def _client(place: Place, path: Path, rounds: int) -> Row:
    found = [place.child("harness.workers.client", path=str(path)) for _ in range(rounds)]
    whole, trainer = (1e6 * min(one[what] for one in found) for what in ("worker", "trainer"))
    note = (
        f"3 KB, batches of {SMALL.batch}: requests, views, slots given back, in a worker that keeps what it gets; it "
        f"copies nothing. With torch's queues a batch costs the worker {whole:.0f} us, the trainer {trainer:.0f} us"
    )
    return absolute("client-cpu", [1e6 * one["client"] for one in found], "us CPU/batch", "<= 50", 50, note)


def client(path: str) -> dict[str, float]:
    """In the child: seconds of processor time a batch, of a client alone, of a worker and of the trainer."""
    import redox
    import torch
    from torch.utils.data import DataLoader, IterableDataset

    class Alone(IterableDataset[torch.Tensor]):
        """Takes the batches in the worker, and gives what that cost."""

        def __iter__(self) -> Iterator[torch.Tensor]:
            ds = redox.RedoxDataset(path, batch_size=SMALL.batch, batched=True)
            batches = iter(ds)
            for _ in range(16):  # an arena is mapped, an engine started
                next(batches)
            begin, taken = time.process_time(), 0
            for _, _ in zip(range(BATCHES), batches, strict=False):
                taken += 1
            yield torch.tensor((time.process_time() - begin) / taken, dtype=torch.float64)

    alone = next(iter(DataLoader(Alone(), batch_size=None, num_workers=1)))
    batches = iter(_loader("redox", path, 1, SMALL.batch))
    next(batches)
    worker = next(it.pid for it in batches._batches._workers)
    mine, its, taken = time.process_time(), cpu_of(worker), 0
    for _, _ in zip(range(BATCHES), batches, strict=False):
        taken += 1
        if taken == 1000:
            break
    its, mine = cpu_of(worker) - its, time.process_time() - mine
    return {"client": float(alone), "worker": its / taken, "trainer": mine / taken}


def cpu_of(process: int) -> float:
    """Return the seconds of processor time of a process's live threads, exactly; /proc/PID/stat counts in ticks."""
    total = 0
    for task in Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that has just ended
            total += int((task / "schedstat").read_text(encoding="ascii").split()[0])
    return total / 1e9


# ---- an engine with nothing to do ---------------------------------------------------------------------------------


def _idle(place: Place, path: Path, rounds: int) -> Row:
    found: dict[str, list[float]] = {"in the middle of an epoch": [], "after one": []}
    for _ in range(rounds):
        for when, costs in found.items():
            child, name = _start(place, "pausing", path=str(path), whole=when == "after one")
            engine = next(iter(_engines(name)), None)
            if engine is None:
                raise MeasureError("there is no engine process")
            time.sleep(SETTLE)
            before = cpu_of(engine)
            time.sleep(IDLE)
            costs.append(1e3 * (cpu_of(engine) - before))
            _go(child)
            place.result(child, 60)
    words = ", ".join(f"{when} {max(costs):.1f}" for when, costs in found.items())
    note = f"in {IDLE:.0f} s, with two workers that live: {words}"
    row = absolute("engine-idle", [one for costs in found.values() for one in costs], "ms CPU", "< 10", 10, note)
    row.measured = row.spread[1] if row.spread else None
    return row


def pausing(path: str, whole: bool) -> dict[str, int]:
    """In the child: take some batches, or an epoch, and then none until told to end."""
    loader = _loader("redox", path, 2, SMALL.batch)
    batches = iter(loader)
    taken = 0
    for _ in batches:
        taken += 1
        if taken == 8 and not whole:
            break
    _stop()
    return {"batches": taken}


def _engines(name: str) -> Iterator[int]:
    for process in tree.processes(name):
        try:
            words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"redox.engine" in words or b"redox/engine.py" in b" ".join(words):
            yield process


# ---- memory of all of them ----------------------------------------------------------------------------------------


def _memory(place: Place, path: Path, name: str, rounds: int) -> Row:
    workers = MEMORY[name]
    window = fitting_window(place, str(path), BATCH, LIMIT)
    above: dict[str, list[float]] = {loader: [] for loader in LOADERS}
    idle, libraries = _baseline(place, workers)
    for _ in range(rounds):
        for loader, peaks in above.items():
            what = {"path": str(path), "kind": loader, "workers": workers, "window": window}
            peaks.append((_peak(place, libraries, str(path.parent), what) - idle) / MIB)
    words = ", ".join(f"{loader}.DataLoader {max(peaks):.1f}" for loader, peaks in above.items())
    limit = LIMIT / MIB
    note = (
        f"engine, trainer and {workers} workers above a trainer with as many idle ones; memory_limit {limit:.1f} MiB, "
        f"window {window}, two epochs: {words}"
    )
    values = [peak for peaks in above.values() for peak in peaks]
    row = absolute(name, values, "MiB PSS", f"<= {limit + OVER:.1f}", limit + OVER, note)
    row.measured = max(values)
    return row


def _baseline(place: Place, workers: int) -> tuple[int, set[str]]:
    """Return the bytes of processes that have only been started, and the files that these have mapped."""
    child, name = _start(place, "idling", workers=workers)
    libraries = {mapped for process in tree.processes(name) for mapped in tree.pss(process) if mapped.startswith("/")}
    idle = _bytes(name, libraries, "/")
    _go(child)
    place.result(child, 60)
    return idle, libraries


def _peak(place: Place, libraries: Collection[str], data: str, what: dict[str, Any]) -> int:
    child, name = _start(place, "loading", **what)
    _go(child)
    peak = 0
    while child.poll() is None:
        peak = max(peak, _bytes(name, libraries, data))
        time.sleep(0.005)
    if place.result(child, 60)["samples"] != 2 * SMALL.samples:
        raise MeasureError("samples are missing")
    return peak


def _bytes(name: str, without: Collection[str], data: str) -> int:
    """Return what the processes have in memory, beside some files and mappings of the data, which are page cache."""
    return sum(
        size for process in tree.processes(name) for mapped, size in tree.pss(process).items()
        if mapped not in without and not mapped.startswith(data)
    )  # fmt: skip


def idling(workers: int) -> dict[str, int]:
    """In the child: import, and fork workers that do nothing."""
    import redox  # noqa: F401  (part of the baseline)
    import torch

    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.zeros(64)), num_workers=workers, persistent_workers=True
    )
    batches = list(loader)
    _stop()
    return {"batches": len(batches)}


def loading(path: str, kind: str, workers: int, window: int | None) -> dict[str, int]:
    """In the child: load two epochs."""
    loader = _loader(kind, path, workers, BATCH, memory_limit=LIMIT, window=window)
    _stop()
    return {"samples": sum(len(batch["label"]) for _ in range(2) for batch in loader)}
