"""What the measuring processes of `epoch.py` do: an epoch timed, its order written down, a state saved and resumed."""

from __future__ import annotations

import os
import pickle
import random
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from harness import tree
from harness.data import Shape, Source, write_source


@dataclass(frozen=True)
class Case:
    """One loader over one data set.

    Attributes:
        peer: Name of its adapter.
        path: The packed data.
        source: The samples as they were made.
        shape: Of the samples.
        workers: As its adapter understands them.
        cache: A folder for what it wants to keep.
        options: For its adapter's `load`.
    """

    peer: str
    path: str
    source: str
    shape: dict[str, Any]
    workers: int
    cache: str
    options: dict[str, Any]

    def adapter(self) -> Any:
        """Import it."""
        return import_module(f"peers.{self.peer}_peer")

    def load(self) -> Iterable[Any]:
        """Make the loader."""
        return self.adapter().load(Path(self.path), Shape(**self.shape), self.workers, Path(self.cache), **self.options)


def make(path: str, shape: dict[str, Any], samples: int) -> dict[str, int]:
    """Make the samples that all loaders load."""
    source = write_source(Shape(**shape), Path(path), samples)
    return {"samples": len(source), "bytes": int(source.sizes.sum())}


def pack(
    peer: str, path: str, source: str, shape: dict[str, Any], shuffled: bool, packing: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Write them in a loader's format, in order or shuffled beforehand."""
    adapter = import_module(f"peers.{peer}_peer")
    samples = Source(source)
    begin = time.perf_counter()
    if getattr(adapter, "SHUFFLES", False):
        adapter.write(Path(path), samples.rows(False), Shape(**shape), shuffled, **(packing or {}))
    else:
        adapter.write(Path(path), samples.rows(shuffled), Shape(**shape), **(packing or {}))
    return {"pack_s": time.perf_counter() - begin}


def describe(peer: str) -> dict[str, Any]:
    """Return what `epoch.py` must know of an adapter; raises where it can't be imported."""
    from importlib.metadata import version

    adapter = import_module(f"peers.{peer}_peer")
    return {
        "package": adapter.PACKAGE, "version": version(adapter.PACKAGE) if adapter.PACKAGE else "",
        "resumes": hasattr(adapter, "state"),
    }  # fmt: skip


# ---- batches ----------------------------------------------------------------------------------------------------


def labels(batch: Any) -> list[int]:
    """Return the numbers of a batch's samples."""
    found = batch["label"] if isinstance(batch, dict) else batch[-1]
    return found.reshape(-1).tolist() if hasattr(found, "tolist") else [int(label) for label in found]


def touch(batch: Any) -> int:
    """Read a byte of each page of a batch: who hands out untouched views of a file reads it here, as all others did."""
    values = batch["x"] if isinstance(batch, dict) else batch[0]
    if isinstance(values, list):
        return sum(sum(value[::4096]) if isinstance(value, bytes) else _touched(value) for value in values)
    return _touched(values)


def _touched(array: Any) -> int:
    flat = np.asarray(array).reshape(-1).view(np.uint8)
    return int(flat[::4096].sum(dtype=np.int64))


# ---- measuring ---------------------------------------------------------------------------------------------------


def rate(case: dict[str, Any], seconds: float, cold: bool, compute_s: float = 0) -> dict[str, Any]:
    """Load epochs for some seconds; of a cold store only the first one; after each batch `compute_s` pass elsewhere.

    The rate begins after the first batch, whose time is a column of its own; on a cold store with the constructor: some
    have copied everything when their first batch comes.

    Returns:
        Rate, processor time of all processes from the constructor on, seconds to the first batch from there, samples
        and bytes given.
    """
    it = _prepared(case)
    sizes = Source(it.source).sizes
    cpu, begin = tree.cpu(_name()), time.perf_counter()
    loader = it.load()
    first = end = 0.0
    given, in_first = 0, 0
    bytes_given = 0
    whole = True
    for batch in _epochs(loader, 1 if cold else sys.maxsize, begin, seconds):
        numbers = labels(batch)
        touch(batch)
        if compute_s:
            time.sleep(compute_s)
        end = time.perf_counter()
        given += len(numbers)
        bytes_given += int(sizes[numbers].sum())
        if not first:
            first, in_first = end - begin, given
        if end - begin - first >= seconds:
            whole = given >= len(sizes)
            break
    span = max(1e-9, end - begin - (0 if cold else first))
    return {
        "rate": (given - (0 if cold else in_first)) / span, "cpu_s": tree.cpu(_name()) - cpu, "first_s": first,
        "samples": given, "bytes": bytes_given, "seconds": span, "whole": whole,
    }  # fmt: skip


def _epochs(loader: Iterable[Any], most: int, begin: float, seconds: float) -> Iterator[Any]:
    """Yield the batches of so many epochs; none begins when the time is over."""
    for number in range(most):
        if number and time.perf_counter() - begin >= seconds:
            return
        yield from loader


def order(case: dict[str, Any], epochs: int, to: str) -> dict[str, Any]:
    """Wait for a line, then load epochs and write the numbers of all samples down; whose memory is looked at."""
    import torch  # noqa: F401  (part of the baseline)

    it = _prepared(case, importing=False)
    print("ready", flush=True)
    sys.stdin.readline()
    source, loader = Source(it.source), it.load()
    wrong, found = 0, []
    for number in range(epochs):
        delivered: list[int] = []
        for batch in loader:
            numbers = labels(batch)
            touch(batch)
            wrong += 0 if number else _differs(batch, numbers, source, it.shape["kind"])
            delivered += numbers
        found.append(np.array(delivered, np.int64))
    np.savez(to, *found)
    return {"wrong": wrong}


def _differs(batch: Any, numbers: list[int], source: Source, kind: str) -> int:
    """Return whether the first sample of a batch is not what was packed; an image only has to be one."""
    values = batch["x"] if isinstance(batch, dict) else batch[0]
    first = values[0]
    if kind == "jpeg":
        return int(tuple(first.shape) not in ((3, 224, 224), (224, 224, 3)))
    wanted = source[numbers[0]]
    return int(bytes(np.asarray(first).tobytes() if not isinstance(first, bytes) else first)[: len(wanted)] != wanted)


def save(case: dict[str, Any], batches: int, to: str) -> dict[str, Any]:
    """Load some batches and write down where the loader stands."""
    it = _prepared(case)
    adapter, loader = it.adapter(), it.load()
    given: list[int] = []
    for number, batch in enumerate(loader, 1):
        given += labels(batch)
        if number == batches:
            state = adapter.state(loader)
            break
    Path(to).write_bytes(pickle.dumps((state, given)))
    return {"bytes": len(pickle.dumps(state))}


def resume(case: dict[str, Any], state: str, to: str) -> dict[str, Any]:
    """Load the rest of the epoch from there."""
    it = _prepared(case)
    adapter = it.adapter()
    saved, given = pickle.loads(Path(state).read_bytes())
    begin = time.perf_counter()
    loader = it.load()
    adapter.resume(loader, saved)
    rest: list[int] = []
    first = 0.0
    for batch in loader:
        first = first or time.perf_counter() - begin
        rest += labels(batch)
    np.savez(to, np.array(given, np.int64), np.array(rest, np.int64))
    return {"first_s": first}


def forever(case: dict[str, Any]) -> None:
    """Say so after some batches, and go on until killed."""
    it = _prepared(case)
    loader, count = it.load(), 0
    while True:
        for _ in loader:
            count += 1
            if count == 3:
                print("ready", flush=True)


def _prepared(case: dict[str, Any], importing: bool = True) -> Case:
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    it = Case(**case)
    if importing:
        it.adapter()
    return it


def _name() -> str:
    return os.environ[tree.VARIABLE]
