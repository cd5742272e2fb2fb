#!/usr/bin/env python3
"""Measure what grows with the data, the nodes and the workers, and print it: nothing may grow faster than they do.

    python benchmarks/growth.py --json benchmarks/results/growth.json    # ten minutes
    python benchmarks/growth.py --only plan --quick

Plan: 10^4 to 10^9 samples. Index: 10^2 to 10^6 chunks. Nodes: 1 to 8, dealing global batches, nothing sent. Workers: 1
to 16 processes over 3 KB samples in memory.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from harness.core import go_bench
from harness.data import SMALL
from harness.machine import Busy, facts, store
from harness.measuring import Bench, Packed
from harness.place import Place
from harness.rivals import TITLES
from harness.slow import HOT
from harness.table import aligned, number

WORKERS = (1, 2, 4, 8, 16)


def main() -> int:
    """Return 0, or 130 after Ctrl-C."""
    options = _options()
    count, duration = (1, "100ms") if options.quick else (5, "1s")
    busy, begin, place = Busy(), time.time(), Place(options.dir, None)
    parts: dict[str, Callable[[], list[dict[str, float]]]] = {
        "plan": lambda: _bench("./golib/internal/plan", "BenchmarkGrowth", "samples", count, duration),
        "index": lambda: _bench("./golib/internal/chunk", "BenchmarkIndex", "chunks", count, duration),
        "nodes": lambda: _bench("./golib/internal/plan", "BenchmarkNodes", "nodes", count, duration),
        "workers": lambda: _workers(place, count, options.quick),
    }
    growth: dict[str, Any] = {}
    try:
        with place:
            for name, part in parts.items():
                if not options.only or name in options.only:
                    print(name, file=sys.stderr, flush=True)
                    growth[name] = part()
    except BaseException:
        if not place.interrupted:
            raise
        return 130
    found = {"machine": facts({}), "busy": busy.look(), "took_s": round(time.time() - begin), "growth": growth}
    store(options.json, found)
    for lines in growth.values():
        print("\n" + aligned(tuple(lines[0]), [tuple(number(value) for value in line.values()) for line in lines]))
    return 0


def _bench(package: str, name: str, what: str, count: int, duration: str) -> list[dict[str, float]]:
    """Return the medians of a Go benchmark that has one case for each size."""
    lines = []
    for case, runs in go_bench(package, f"^{name}$", count, duration).items():
        units = [unit for unit in runs[0] if unit not in ("ns/op", "B/op", "allocs/op")]
        size = float(case.partition(f"{what}=")[2])
        lines.append({what: size, **{unit: median(run[unit] for run in runs) for unit in units}})
    return lines


def _workers(place: Place, rounds: int, quick: bool) -> list[dict[str, float]]:
    """Return rate, first batch and memory for each number of worker processes."""
    bench, source, path = Bench(place), place.hot / "source", place.hot / "redox"
    samples, shape = (20_000 if quick else 200_000), asdict(SMALL)
    place.child("harness.epochs.make", path=str(source), shape=shape, samples=samples)
    place.child(
        "harness.epochs.pack", peer="redox", path=str(path), source=str(source), shape=shape, shuffled=True
    )  # fmt: skip
    data = Packed(TITLES["Redox"], SMALL, source, path, samples, True, True)
    lines = []
    for workers in WORKERS:
        runs = [bench.rate(data, HOT, workers, 0.5 if quick else 5) for _ in range(rounds)]
        memory = bench.order(data, workers, 1)["memory_mib"]
        lines.append({
            "workers": workers, "samples/s": median(run["rate"] for run in runs),
            "CPU s/10k": median(1e4 * run["cpu_s"] / run["samples"] for run in runs),
            "first batch s": median(run["first_s"] for run in runs), "MiB": memory,
        })  # fmt: skip
    return lines


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure what grows with the data, the nodes and the workers.")
    parser.add_argument("--quick", action="store_true", help="once, for a short time")
    parser.add_argument("--only", action="append", choices=("plan", "index", "nodes", "workers"), help="this part")
    parser.add_argument("--json", type=Path, metavar="FILE", help="store it, with machine, versions, commit")
    parser.add_argument("--dir", type=Path, help="where the data is (a tmpfs, else the temporary folder)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
