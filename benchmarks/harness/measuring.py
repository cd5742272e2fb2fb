"""One measurement: a child process of a loader, on a store, with nothing of it left afterwards."""

from __future__ import annotations

import os
import select
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from harness import tree
from harness.data import Shape
from harness.mixing import amiss, vif
from harness.place import MeasureError, Place
from harness.rivals import Rival, install
from harness.slow import HOT, VOID, Emulator, Store

PATIENCE = 300.0  # seconds, beside those that are measured: import, packing, an epoch on a slow store
KILLED = 8.0  # seconds after which nothing of a killed program may be left; torch looks for its parent every 5
ATTEMPTS = 2  # at a run whose emulator came late
NOTHING = 0.01  # of a run's time: where the emulator hardly waited, coming late by less changes nothing
MIB = 1 << 20
_numbers = count()


@dataclass(frozen=True)
class Packed:
    """A data set in a loader's format."""

    rival: Rival
    shape: Shape
    source: Path
    path: Path
    samples: int
    shuffled: bool
    resumes: bool  # whether its adapter says how


class Bench:
    """Runs measurements one at a time."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def rate(self, data: Packed, store: Store, workers: int, seconds: float, compute_s: float = 0) -> dict[str, Any]:
        """Return what an epoch gave, and what the store did for it; see `epochs.rate`."""
        for attempt in range(ATTEMPTS):
            with self._run(data, store, workers) as (case, env, emulator):
                if emulator:
                    emulator.look()
                python = install(data.rival.title)
                what: dict[str, Any] = {"case": case, "seconds": seconds, "cold": store.slow, "compute_s": compute_s}
                child = self._place.start("harness.epochs.rate", python, env, **what)
                found = self._place.result(child, seconds + PATIENCE) | {"workers": workers}
                if emulator:
                    did = emulator.look()
                    found["store"] = did
                    late = abs(did["got_s"] - did["want_s"])
                    found["void"] = not 2 - VOID <= did["off"] <= VOID and late > NOTHING * found["seconds"]
            if not found.get("void") or attempt == ATTEMPTS - 1:
                break
        return found

    def order(self, data: Packed, workers: int, epochs: int) -> dict[str, Any]:
        """Return mixing, completeness, peak memory, and the orders themselves."""
        with self._run(data, HOT, workers) as (case, env, _):
            to = Path(env["TMPDIR"], "order.npz")
            child = self._place.start(
                "harness.epochs.order", install(data.rival.title), env, case=case, epochs=epochs, to=str(to)
            )
            name, without = env[tree.VARIABLE], str(self._place.hot)
            self._expect(child, "ready")
            before = peak = tree.memory(name, without)
            child.stdin.write("go\n")
            child.stdin.flush()
            end = time.monotonic() + PATIENCE
            while child.poll() is None and time.monotonic() < end:
                if to.exists() and to.stat().st_size:  # a process that ends slowly is in `result`
                    break
                peak = max(peak, tree.memory(name, without))
                time.sleep(0.05)
            found = self._place.result(child, 30)
            with np.load(to) as file:
                orders = [file[key] for key in file.files]
        return {
            "memory_mib": (peak - before) / MIB, "wrong": found["wrong"], "orders": orders,
            "vif": float(np.mean([vif(order, data.shape.batch, data.samples) for order in orders])),
            "amiss": "; ".join(sorted({words for order in orders if (words := amiss(order, data.samples))})),
        }  # fmt: skip

    def resumes(self, data: Packed, workers: int, again: int) -> str:
        """Return how exactly an epoch goes on that was broken off with so many workers, with so many `again`."""
        batches = max(1, min(10, data.samples // data.shape.batch // 3))
        python = install(data.rival.title)
        with self._run(data, HOT, workers) as (case, env, _):
            folder = Path(env["TMPDIR"])
            whole, state, rest = folder / "whole.npz", folder / "state", folder / "rest.npz"
            child = self._place.start("harness.epochs.order", python, env, case=case, epochs=1, to=str(whole))
            self._expect(child, "ready")
            child.stdin.write("go\n")
            child.stdin.flush()
            self._place.result(child, PATIENCE)
            try:
                what: dict[str, Any] = {"case": case, "batches": batches, "to": str(state)}
                self._place.result(self._place.start("harness.epochs.save", python, env, **what), PATIENCE)
                what = {"case": case | {"workers": again}, "state": str(state), "to": str(rest)}
                self._place.result(self._place.start("harness.epochs.resume", python, env, **what), PATIENCE)
            except MeasureError as error:
                return f"no: {str(error)[:60]}"
            with np.load(whole) as one, np.load(rest) as two:
                order, given, after = one["arr_0"], two["arr_0"], two["arr_1"]
        if np.array_equal(np.concatenate([given, after]), order):
            return "exact"
        return "same samples" if not amiss(np.concatenate([given, after]), data.samples) else "no"

    def left(self, data: Packed, workers: int) -> dict[str, Any]:
        """Return what is left of a program that was killed while it trained."""
        with self._run(data, HOT, workers) as (case, env, _):
            watch = tree.Left(env[tree.VARIABLE], Path(env["TMPDIR"]))
            child = self._place.start("harness.epochs.forever", install(data.rival.title), env, case=case)
            self._expect(child, "ready")
            watch.note(str(self._place.hot))
            child.send_signal(signal.SIGKILL)
            child.wait()
            self._place.ended(child)
            return watch.look(KILLED)

    @contextmanager
    def _run(
        self, data: Packed, store: Store, workers: int
    ) -> Iterator[tuple[dict[str, Any], dict[str, str], Emulator | None]]:
        """Yield a case, its environment and the emulator; end what is left of its processes, remove its files."""
        name = f"{os.getpid()}-{next(_numbers)}"
        scratch = self._place.disk / f"run-{name}"
        cached = self._place.disk / f"cache-{name}"
        scratch.mkdir()
        env = {
            tree.VARIABLE: name, "TMPDIR": str(scratch), "HF_HOME": str(cached / "hub"), "HF_HUB_OFFLINE": "1",
            "LITDATA_DISABLE_VERSION_CHECK": "1",
        }  # fmt: skip
        case = {
            "peer": data.rival.peer, "path": str(data.path), "source": str(data.source), "shape": asdict(data.shape),
            "workers": workers, "cache": str(cached / "kept"), "options": data.rival.options,
        }  # fmt: skip
        try:
            if store.slow:
                with Emulator(self._place, store, data.path.parent) as emulator:
                    try:
                        yield case | {"path": str(emulator.path / data.path.name)}, env, emulator
                    finally:
                        self._end(name)
            else:
                yield case, env, None
        finally:
            self._end(name)
            shutil.rmtree(scratch, ignore_errors=True)
            shutil.rmtree(cached, ignore_errors=True)

    def _end(self, name: str) -> None:
        for process in tree.processes(name):
            os.kill(process, signal.SIGKILL)

    def _expect(self, child: Any, line: str) -> None:
        came, _, _ = select.select([child.stdout], [], [], PATIENCE)
        if not came or child.stdout.readline().strip() != line:
            child.kill()
            child.wait()
            words = self._place.last_words(child)
            self._place.ended(child)
            raise MeasureError(words)
