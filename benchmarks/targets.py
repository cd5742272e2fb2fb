#!/usr/bin/env python3
"""Measure every target of the project in one run and print the table.

    python benchmarks/targets.py                    # everything, about 75 minutes on two cores
    python benchmarks/targets.py --quick            # fewer and shorter rounds
    python benchmarks/targets.py --only 3KB-tenth   # one row; may be given several times; a prefix will do
    python benchmarks/targets.py --json FILE        # also store it, with machine, versions and commit

Data is made in a folder on memory and one on disk, and removed at the end, after Ctrl-C too. Ratios compare what was
measured within one round only. What each row means: benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from harness import core, footprint, nodes, packing, seeds, speed, workers
from harness.machine import Busy, facts, store
from harness.place import Place
from harness.table import Row, markdown

SPEED = {row.name: row for row in speed.COMPARISONS}
NAMES = (*SPEED, *core.NAMES, *footprint.NAMES, *workers.NAMES, *packing.NAMES, *nodes.NAMES, *seeds.NAMES)


def main() -> int:
    """Return 0 when every row passes, 1 when one fails, 130 after Ctrl-C."""
    options = _options()
    names = _chosen(options.only)
    rounds = options.rounds or (1 if options.quick else 5)
    busy, begin = Busy(), time.time()
    place = Place(options.dir, options.disk)
    try:
        with place:
            rows, versions = _measure(place, names, rounds, options.quick)
    except BaseException:
        if not place.interrupted:
            raise
        print("interrupted; the data is removed", file=sys.stderr)
        return 130
    found: dict[str, Any] = {
        "machine": facts(versions), "busy": busy.look(), "seconds": round(time.time() - begin), "rounds": rounds,
        "rows": [row.to_json() for row in rows],
    }  # fmt: skip
    print("\n" + markdown(rows) + "\n")
    print(json.dumps({name: value for name, value in found.items() if name != "rows"}, indent=2))
    store(options.json, found)
    return int(any(row.verdict == "FAIL" for row in rows))


def _measure(place: Place, names: set[str], rounds: int, quick: bool) -> tuple[list[Row], dict[str, str]]:
    rows, versions = speed.measure(place, [row for name, row in SPEED.items() if name in names], rounds, quick)
    if names & set(core.NAMES):
        print("core: go test", flush=True)
        rows += core.measure(names, min(rounds, 3), quick)
    if names & set(footprint.NAMES):
        print("footprint", flush=True)
        rows += footprint.measure(place, names, min(rounds, 3))
    if names & set(workers.NAMES):
        print("workers and their engine", flush=True)
        rows += workers.measure(place, names, min(rounds, 3), quick)
    if names & set(nodes.NAMES):
        print("nodes: go test", flush=True)
        rows += nodes.measure(names, min(rounds, 3), quick)
    if names & set(packing.NAMES):
        print("packing", flush=True)
        rows += packing.measure(place, names, min(rounds, 3), quick)
    if names & set(seeds.NAMES):
        print("what the papers promise", flush=True)
        rows += seeds.measure(place, names, min(rounds, 3), quick)
    return rows, versions


def _chosen(only: list[str]) -> set[str]:
    if not only:
        return set(NAMES)
    names = {name for name in NAMES for prefix in only if name.startswith(prefix)}
    if not names:
        sys.exit(f"targets.py: no row named {', '.join(only)}; there are {', '.join(NAMES)}")
    return names


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure every target of the project and print the table.")
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--rounds", type=int, help="how often (5, quick 1)")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this row, or those that start so")
    parser.add_argument("--json", type=Path, metavar="FILE", help="store the table and all rounds")
    parser.add_argument("--dir", type=Path, help="where the data is (a tmpfs, else the temporary folder)")
    parser.add_argument("--disk", type=Path, help="a folder on a disk, to pack on (the temporary folder)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
