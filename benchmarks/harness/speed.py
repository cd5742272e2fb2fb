"""Rows of rates: what the loader reaches beside what C reaches and what others reach, in the same rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from harness import rivals
from harness.data import DATA_BYTES, LARGE, SMALL, Shape, write_files, write_flat, write_redox
from harness.place import MeasureError, Place
from harness.table import Row, compare, skipped

TENTH = DATA_BYTES // 10
EVERYTHING = DATA_BYTES * 3 // 2  # the data, batches, tables
WORKERS = (0, 2)


@dataclass(frozen=True)
class Comparison:
    """A row: one way to load (`mine`) against the best of others, at least `bound` times as fast."""

    name: str
    shape: Shape
    mine: str
    others: tuple[str, ...]
    against: str
    bound: float


def _small() -> list[Comparison]:
    files = tuple(f"files{workers}" for workers in WORKERS)
    rows = [
        Comparison("3KB-tenth", SMALL, "tenth", ("limits.chunks",), "C: pread chunks + gather", 0.8),
        Comparison("3KB-resident", SMALL, "resident", ("limits.gather",), "C: gather", 0.8),
        Comparison("3KB-samplewise", SMALL, "samplewise", ("tenth",), "own batched rate", 0.3),
        Comparison("3KB-samplewise-memmap", SMALL, "samplewise", ("memmap",), "DataLoader over np.memmap", 3),
        Comparison("3KB-files", SMALL, "tenth", files, "DataLoader over files", 10),
    ]
    for name in rivals.TARGETS:
        ways = tuple(f"{name}{workers}" for workers in WORKERS)
        rows.append(Comparison(f"3KB-{name}", SMALL, "tenth", ways, name, 10))
    return rows


COMPARISONS = [
    *_small(),
    Comparison("110KB-tenth", LARGE, "tenth", ("limits.chunks",), "C: pread chunks + gather", 0.8),
    Comparison("110KB-resident", LARGE, "resident", ("limits.gather",), "C: gather", 0.8),
    Comparison("110KB-files", LARGE, "tenth", ("files0", "files2"), "DataLoader over files", 1.5),
]


class Rates:
    """The ways to load samples of one shape: data made when first needed, one rate per way and round."""

    def __init__(self, place: Place, shape: Shape, seconds: float, samples: int) -> None:
        self._place, self._shape, self._seconds, self._samples = place, shape, seconds, samples
        self._made: dict[str, Any] = {}
        self._broken: dict[str, str] = {}  # why a way can't be measured
        self.versions: dict[str, str] = {}
        self.windows: dict[str, int | None] = {}

    def round(self, ways: set[str]) -> dict[str, float]:
        """Return the rate of each way that works; the limits are measured before and after Redox."""
        found: dict[str, float] = {}
        limits = [self._limits()] if any(way.startswith("limits") for way in ways) else []
        for way in sorted(ways, key=_order):
            if way.startswith("limits") or way in self._broken:
                continue
            try:
                measured = self._measure(way)
                found |= {way: measured["rate"], f"{way}_cpu": measured["rate_cpu"]}
            except (MeasureError, RuntimeError) as error:
                self._broken[way] = str(error)
            if limits and way in ("tenth", "resident"):
                limits.append(self._limits())
        for name in limits[0] if limits else ():
            found[f"limits.{name}"] = mean(limit[name] for limit in limits)
        return found

    def why(self, ways: tuple[str, ...]) -> str:
        """Return why none of these ways was measured."""
        return "; ".join(sorted({self._broken[way] for way in ways if way in self._broken})) or "not measured"

    def _limits(self) -> dict[str, float]:
        found = self._place.limits(self._shape.size, self._shape.batch, self._seconds / 2)
        return {name: value for name, value in found.items() if name not in ("sample_bytes", "batch")}

    def _measure(self, way: str) -> dict[str, Any]:
        name, workers = (way[:-1], int(way[-1])) if way[-1].isdigit() else (way, 0)
        if name in rivals.TARGETS:
            return self._rival(name, workers)
        return self._own(name, workers)

    def _own(self, name: str, workers: int) -> dict[str, Any]:
        shape, child, seconds = self._shape, self._place.child, self._seconds
        if name == "memmap":
            path = self._data("flat", write_flat)
            return child("harness.ways.mapped", path=path, size=shape.size, batch=shape.batch, seconds=seconds)
        if name == "files":
            return child(
                "harness.ways.files", root=self._data("files", write_files), samples=self._samples, batch=shape.batch,
                tensors=shape.kind != "bytes", workers=workers, seconds=seconds,
            )  # fmt: skip
        path = self._data("redox", write_redox)
        limit = EVERYTHING if name == "resident" else TENTH
        what: dict[str, Any] = {"path": path, "batch": shape.batch, "memory_limit": limit, "seconds": seconds}
        if name not in self.windows:
            self.windows[name] = fitting_window(self._place, path, shape.batch, limit)
        what["window"] = self.windows[name]
        if name == "samplewise":
            return child("harness.ways.samplewise", **what)
        return child("harness.ways.batched", **what)

    def _rival(self, name: str, workers: int) -> dict[str, Any]:
        key = f"rival {name}"
        if key not in self._made:
            python = rivals.install(name)
            path = str(self._place.hot / name)
            peer = rivals.TITLES[name].peer
            written = self._place.child("harness.rivals.write", python, peer=peer, path=path, samples=self._samples)
            self.versions[name] = written["version"]
            self._made[key] = python, path
        python, path = self._made[key]
        return self._place.child(
            "harness.rivals.load", python, peer=rivals.TITLES[name].peer, path=path, workers=workers,
            seconds=self._seconds,
        )  # fmt: skip

    def _data(self, name: str, write: Callable[[Shape, Path, int], None]) -> str:
        if name not in self._made:
            path = self._place.hot / f"{self._shape.name}.{name}"
            write(self._shape, path, self._samples if name == "files" else self._shape.samples)
            self._made[name] = str(path)
        made: str = self._made[name]
        return made


def _order(way: str) -> tuple[int, str]:
    first = ("tenth", "resident", "samplewise", "memmap")
    return (first.index(way) if way in first else len(first), way)


def fitting_window(place: Place, path: str, batch: int, memory_limit: int) -> int | None:
    """Return the default window (None) where it fits a limit, else two thirds of the largest that does.

    The rest of the memory is for reading ahead, without which every new chunk is waited for.
    """
    largest = place.child("harness.ways.largest_window", path=path, batch=batch, memory_limit=memory_limit)["window"]
    return max(1, largest * 2 // 3) if largest else None


def measure(place: Place, comparisons: list[Comparison], rounds: int, quick: bool) -> tuple[list[Row], dict[str, str]]:
    """Return the rows, and the versions of the rivals."""
    seconds = 1.0 if quick else 3.0
    rows: list[Row] = []
    versions: dict[str, str] = {}
    for shape in (SMALL, LARGE):
        chosen = [row for row in comparisons if row.shape is shape]
        if not chosen:
            continue
        samples = min(shape.samples, 20_000 if quick else 200_000)
        rates = Rates(place, shape, seconds, samples)
        ways = {way for row in chosen for way in (row.mine, *row.others)}
        found = []
        for number in range(rounds):
            print(f"{shape.name}: round {number + 1} of {rounds}", flush=True)
            found.append(rates.round(ways))
        rows += [_row(row, found, rates) for row in chosen]
        versions |= rates.versions
    return rows, versions


def _row(row: Comparison, rounds: list[dict[str, float]], rates: Rates) -> Row:
    pairs, of_cpu = [], []
    for found in rounds:
        others = [way for way in row.others if way in found]
        if row.mine in found and others:
            best = max(others, key=lambda way: found[way])
            pairs.append((found[row.mine], found[best]))
            if not best.endswith(tuple("123456789")):  # what worker processes used is not known
                of_cpu.append(found[f"{row.mine}_cpu"] / found[f"{best}_cpu"])
    if not pairs:
        return skipped(row.name, f">= {row.bound:g} x", rates.why((row.mine, *row.others)))
    window = rates.windows.get(row.mine)
    note = f"window {window}" if window else ""
    return compare(row.name, pairs, "samples/s", row.against, row.bound, note, of_cpu)
