"""Rows of rates: what the loader reaches beside what C reaches and what others reach, in the same rounds."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from harness import rivals
from harness.data import DATA_BYTES, LARGE, SMALL, Shape, write_files, write_flat, write_redox
from harness.place import MeasureError, Place
from harness.rivals import TITLES
from harness.table import Row, compare, skipped

TENTH = DATA_BYTES // 10
EVERYTHING = DATA_BYTES * 3 // 2  # the data, batches, tables
WORKERS = (0, 2)
# Ways of rivals that their adapters load: all but two carry their titles, as `files` and `memmap` are other ways here.
PEERS = {{"memmap": "gather", "files": "peer-files"}.get(title, title): title for title in rivals.WITH_WORKERS}
BUSY_US = 200  # of pure computing for each sample, in the rows of transforms


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


def _with_workers() -> list[Comparison]:
    """The rows of worker processes, through each of two loaders: against the best of all others, against its own."""
    rows = []
    for shape, bound in ((SMALL, 6), (LARGE, 4)):
        others = tuple(
            f"{name}2" for name in PEERS if not TITLES[PEERS[name]].shapes or shape.name in TITLES[PEERS[name]].shapes
        )
        for suffix, mine, alone in (("", "redox2", "redox0"), ("-torch", "torch2", "samplewise")):
            name = f"{shape.name}-workers{suffix}"
            rows.append(Comparison(name, shape, mine, others, "best of all, 2 workers", bound))
            rows.append(Comparison(f"{name}-own", shape, mine, (alone,), "own rate without workers", 0.5))
    for suffix, mine in (("", "redox-busy2"), ("-torch", "torch-busy2")):
        rows.append(
            Comparison(f"transform-overhead{suffix}", SMALL, mine, ("pool2",), "multiprocessing.Pool(2)", 1 / 1.05)
        )
    return rows


COMPARISONS = [
    *_small(),
    *_with_workers(),
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
        if name in PEERS:
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
        if name == "pool":
            return child(
                "harness.ways.pool", turns=self._turns(), batch=shape.batch, workers=workers, seconds=3 * seconds
            )
        path = self._data("redox", write_redox)
        limit = EVERYTHING if name == "resident" else TENTH
        what: dict[str, Any] = {"path": path, "batch": shape.batch, "memory_limit": limit, "seconds": seconds}
        if name not in self.windows:
            self.windows[name] = fitting_window(self._place, path, shape.batch, limit)
        what["window"] = self.windows[name]
        kind, _, busy = name.partition("-")
        if kind in ("redox", "torch"):
            turns = self._turns() if busy else 0
            what["seconds"] = 3 * seconds if busy else seconds
            return child("harness.ways.loader", kind=kind, workers=workers, turns=turns, **what)
        if name == "samplewise":
            return child("harness.ways.samplewise", **what)
        return child("harness.ways.batched", **what)

    def _rival(self, name: str, workers: int) -> dict[str, Any]:
        title, key = PEERS[name], f"rival {name}"
        python, what = rivals.install(title), {"peer": TITLES[title].peer, "shape": asdict(self._shape)}
        if key not in self._made:
            path = str(self._place.hot / f"{self._shape.name}.{name}")
            written = self._place.child("harness.rivals.write", python, path=path, samples=self._samples, **what)
            if written["version"]:
                self.versions[title] = written["version"]
            self._made[key] = path
        return self._place.child(
            "harness.rivals.load", python, path=self._made[key], workers=workers, seconds=self._seconds, **what
        )

    def _turns(self) -> int:
        """Return how often the transform turns to take BUSY_US."""
        if "turns" not in self._made:
            self._made["turns"] = self._place.child("harness.ways.calibrated", us=BUSY_US)["turns"]
        turns: int = self._made["turns"]
        return turns

    def _data(self, name: str, write: Callable[[Shape, Path, int], None]) -> str:
        if name not in self._made:
            path = self._place.hot / f"{self._shape.name}.{name}"
            write(self._shape, path, self._samples if name == "files" else self._shape.samples)
            self._made[name] = str(path)
        made: str = self._made[name]
        return made

    def clear(self) -> None:
        """Remove the data: that of all shapes together may be more than memory holds."""
        for path in self._place.hot.glob(f"{self._shape.name}.*"):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()


def _order(way: str) -> tuple[int, str]:
    first = ("tenth", "resident", "samplewise", "memmap", "redox0", "redox2", "torch2")
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
        rates.clear()
    return rows, versions


def _row(row: Comparison, rounds: list[dict[str, float]], rates: Rates) -> Row:
    pairs, of_cpu, chosen = [], [], []
    for found in rounds:
        others = [way for way in row.others if way in found]
        if row.mine in found and others:
            best = max(others, key=lambda way: found[way])
            pairs.append((found[row.mine], found[best]))
            chosen.append(best)
            if f"{best}_cpu" in found:
                of_cpu.append(found[f"{row.mine}_cpu"] / found[f"{best}_cpu"])
    if not pairs:
        return skipped(row.name, f">= {row.bound:g} x", rates.why((row.mine, *row.others)))
    window = rates.windows.get(row.mine)
    words = [f"window {window}"] if window else []
    if len(row.others) > len(WORKERS):
        words.append(f"the best is {max(set(chosen), key=chosen.count)}")
        missing = [way for way in row.others if all(way not in found for found in rounds)]
        words += [f"not measured: {', '.join(missing)}"] if missing else []
    return compare(row.name, pairs, "samples/s", row.against, row.bound, "; ".join(words), of_cpu)
