"""The rows of `epoch.py`: every loader on every store, in rounds, and what else each one promises."""

from __future__ import annotations

import fnmatch
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import Any

import numpy as np

from harness import slow
from harness.data import IMAGES, SMALL, VARIED, Shape
from harness.measuring import Bench, Packed
from harness.place import MeasureError, Place
from harness.rivals import RIVALS, Rival, install
from harness.slow import HOT, STORES, Store

SHAPES = (SMALL, VARIED, IMAGES)
SAMPLES = {SMALL.name: (100_000, 20_000), VARIED.name: (4_000, 1_500), IMAGES.name: (2_000, 400)}  # and where quick
READERS = (0, 2, 4, 16)  # tried on a slow store, where more readers may hide its latency


@dataclass
class Row:
    """A loader on a store: what it gave in each round, with the number of workers that gives most.

    Attributes:
        name: `shape/store/loader`; `-shuffled`: packed in random order, else in the order of the classes.
        runs: Of all rounds and numbers of workers; see `epochs.rate`.
        note: Why there are none.
        tried: Rates by number of workers of the run that chose it on a slow store.
    """

    name: str
    shape: str
    store: str
    title: str
    packed: bool
    shuffled: bool
    runs: list[dict[str, Any]] = field(default_factory=list)
    note: str = ""
    tried: dict[str, float] = field(default_factory=dict)
    properties: dict[str, Any] = field(default_factory=dict)

    @property
    def workers(self) -> int | None:
        """The number that gives most."""
        counts = {run["workers"] for run in self._sound()}
        return max(counts, key=lambda count: median(self._of("rate", count))) if counts else None

    def summary(self) -> dict[str, Any]:
        """Return medians over the rounds with the best number of workers."""
        workers = self.workers
        if workers is None:
            return {"note": self.note or ("every run was void: the emulator came late" if self.runs else "no run")}
        rates = self._of("rate", workers)
        found = {
            "workers": workers, "rate": median(rates), "low": min(rates), "high": max(rates),
            "cpu_10k": median(
                1e4 * run["cpu_s"] / run["samples"] for run in self._sound() if run["workers"] == workers
            ),
            "first_s": min(median(self._of("first_s", count)) for count in {run["workers"] for run in self._sound()}),
        }  # fmt: skip
        runs = [run for run in self._sound() if run["workers"] == workers and "store" in run]
        if runs:
            found |= {
                "opens": median(run["store"]["opens"] / run["samples"] for run in runs),
                "reads": median(run["store"]["reads"] / run["samples"] for run in runs),
                "jumps": median(run["store"]["jumps"] / run["samples"] for run in runs),
                "bytes": median(run["store"]["bytes"] / run["bytes"] for run in runs),
                "off": max(run["store"]["off"] for run in runs),
            }  # fmt: skip
        return found

    def rounds(self) -> list[float]:
        """Return the rate of each round, with the best number of workers."""
        workers = self.workers
        return [] if workers is None else self._of("rate", workers)

    def _sound(self) -> list[dict[str, Any]]:
        return [run for run in self.runs if not run.get("void")]

    def _of(self, what: str, workers: int) -> list[float]:
        return [run[what] for run in self._sound() if run["workers"] == workers]

    def to_json(self) -> dict[str, Any]:
        """Everything."""
        return asdict(self) | {"summary": self.summary()}


def rows(only: list[str]) -> list[Row]:
    """Return the rows to measure, still empty; `only` has prefixes or patterns of names, nothing means all."""
    return [row for row in _all() if not only or any(_fits(row.name, pattern) for pattern in only)]


def _fits(name: str, pattern: str) -> bool:
    return name.startswith(pattern) or fnmatch.fnmatchcase(name, pattern)


def _all() -> Iterator[Row]:
    for shape in SHAPES:
        for store in STORES if shape is VARIED else (HOT,):
            for rival in RIVALS:
                if (rival.shapes and shape.name not in rival.shapes) or (store.slow and rival.hot_only):
                    continue
                if rival.slow_only and not store.slow:
                    continue
                for shuffled in (False, True) if rival.packed else (False,):
                    name = f"{shape.name}/{store.name}/{rival.title}{'-shuffled' if shuffled else ''}"
                    yield Row(name, shape.name, store.name, rival.title, rival.packed, shuffled)


class Contest:
    """Measures the rows of one shape.

    Args:
        place: Where.
        shape: Of the samples.
        workers: Numbers of workers to try.
        seconds: For each run, at least one epoch where that is shorter.
        quick: Fewer samples, and no looking for the best number of readers.
    """

    def __init__(self, place: Place, shape: Shape, workers: list[int], seconds: float, quick: bool) -> None:
        self._place, self._shape, self._workers = place, shape, workers
        self._seconds, self._quick, self._bench = seconds, quick, Bench(place)
        self._samples = SAMPLES[shape.name][quick]
        self._folder, self._source = place.hot / "packed", place.hot / "source"
        self._data: dict[str, Packed | str] = {}  # by title and order; a word: why there is none
        self._best: dict[str, list[int]] = {}  # numbers of workers, by row
        self.versions: dict[str, str] = {}
        self._shape_json = asdict(shape)

    def measure(self, rows: list[Row], rounds: int, properties: bool) -> None:
        """Fill the rows in."""
        self._folder.mkdir()
        self._place.child("harness.epochs.make", path=str(self._source), shape=self._shape_json, samples=self._samples)
        for row in rows:
            self._packed(row)
        if properties:
            self._properties(rows)
        for row in rows:
            self._choose(row)
        for number in range(rounds):
            for row in rows:
                _tell(f"round {number + 1} of {rounds}: {row.name}")
                for workers in self._best[row.name]:
                    self._try(row, workers, self._seconds)
        shutil.rmtree(self._folder)
        shutil.rmtree(self._source)

    def _try(self, row: Row, workers: int, seconds: float) -> None:
        data, store = self._data[_key(row)], _store(row)
        if isinstance(data, Packed):
            data = replace(data, rival=_rival(row))  # two may share what is packed
        if isinstance(data, str) or (store.slow and slow.missing()):
            row.note = data if isinstance(data, str) else slow.missing()
            return
        try:
            row.runs.append(self._bench.rate(data, store, workers, seconds))
        except MeasureError as error:
            row.note = f"{workers} workers: {error}"

    # ---- before the rounds --------------------------------------------------------------------------------------

    def _packed(self, row: Row) -> None:
        """Write a row's data, unless another row has it."""
        if _key(row) in self._data:
            return
        rival, path = _rival(row), self._folder / _key(row)
        _tell(f"packing {_key(row)}")
        try:
            python = install(rival.title)
            described = self._place.child("harness.epochs.describe", python, peer=rival.peer)
            if described["version"]:
                self.versions[described["package"]] = described["version"]
            what: dict[str, Any] = {"source": str(self._source), "shape": self._shape_json, "shuffled": row.shuffled}
            what["packing"] = rival.packing
            self._place.child("harness.epochs.pack", python, peer=rival.peer, path=str(path), **what)
        except (RuntimeError, MeasureError) as error:
            self._data[_key(row)] = str(error)
            return
        self._data[_key(row)] = Packed(
            rival, self._shape, self._source, path, self._samples, row.shuffled, described["resumes"]
        )

    def _choose(self, row: Row) -> None:
        """Find the number of readers that is best on a slow store, by a short run of each."""
        self._best[row.name] = self._workers
        if not _store(row).slow or self._quick or _rival(row).own or isinstance(self._data[_key(row)], str):
            return
        _tell(f"readers of {row.name}")
        trial = Row(row.name, row.shape, row.store, row.title, row.packed, row.shuffled)
        for workers in READERS:
            self._try(trial, workers, self._seconds / 3)
        row.tried = {str(run["workers"]): run["rate"] for run in trial.runs}
        if trial.workers is not None:
            self._best[row.name] = [trial.workers]

    # ---- what is no rate ----------------------------------------------------------------------------------------

    def _properties(self, rows: list[Row]) -> None:
        """Fill in what does not depend on the store: from the data as it is, once for each way to pack it."""
        known: dict[str, dict[str, Any]] = {}
        for row in rows:
            data = self._data[_key(row)]
            if not isinstance(data, str):
                if _key(row) not in known:
                    _tell(f"properties of {_key(row)}")
                    known[_key(row)] = self._look(data)
                row.properties = known[_key(row)]

    def _look(self, data: Packed) -> dict[str, Any]:
        found: dict[str, Any] = {"memory_mib": {}}
        orders = []
        for workers in self._workers:
            try:
                look = self._bench.order(data, workers, 2)
            except MeasureError as error:
                found[f"failed with {workers} workers"] = str(error)
                continue
            orders.append(look["orders"][0])
            found["memory_mib"][str(workers)] = round(look["memory_mib"], 1)
            found.setdefault("vif", look["vif"])
            if look["amiss"] or look["wrong"]:
                found[f"amiss with {workers} workers"] = look["amiss"] or f"{look['wrong']} batches with other samples"
        if len(orders) > 1:
            found["order_stable"] = all(np.array_equal(orders[0], order) for order in orders[1:])
        if data.shuffled:  # the same loader; once is enough
            return found
        fewest, most = min(self._workers), max(self._workers)
        try:
            found["resume"] = self._bench.resumes(data, fewest, fewest) if data.resumes else "none"
            if data.resumes and most != fewest:
                found["resume_other_workers"] = self._bench.resumes(data, most, fewest)
            found["left"] = self._bench.left(data, most)
        except MeasureError as error:
            found["failed"] = str(error)
        return found


def _key(row: Row) -> str:
    return row.title.replace("-remote", "") + ("-shuffled" if row.shuffled else "")


def _rival(row: Row) -> Rival:
    return next(rival for rival in RIVALS if rival.title == row.title)


def _store(row: Row) -> Store:
    return next(store for store in STORES if store.name == row.store)


def _tell(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
