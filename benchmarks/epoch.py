#!/usr/bin/env python3
"""Measure Redox beside what people use today, on fast and on slow storage, and print the tables.

    python benchmarks/epoch.py                          # everything, some hours on two cores
    python benchmarks/epoch.py --quick                  # one short round
    python benchmarks/epoch.py --only 110KB-varied/disk # rows that start so, or '*/hot/LitData*'; may be given again
    python benchmarks/epoch.py --workers 0,2 --json FILE

Rivals are installed into .bench-venv, an environment for each. Emulated storage needs root, /dev/fuse and Go. What each
column means: benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from harness.contest import SHAPES, Contest, rows
from harness.machine import Busy, facts, store
from harness.place import Place
from harness.report import tables


def main() -> int:
    """Return 0 when all that was asked for was measured, 130 after Ctrl-C."""
    options = _options()
    chosen = rows(options.only)
    if not chosen:
        sys.exit(f"epoch.py: no row fits {options.only}; there are {', '.join(row.name for row in rows([]))}")
    if options.list:
        print("\n".join(row.name for row in chosen))
        return 0
    rounds = options.rounds or (1 if options.quick else 5)
    seconds = options.seconds or (1.5 if options.quick else 10.0)
    busy, begin, place = Busy(), time.time(), Place(options.dir, options.disk)
    versions: dict[str, str] = {}
    found: dict[str, Any] = {}
    try:
        with place:
            for shape in SHAPES:
                contest = Contest(place, shape, options.workers, seconds, options.quick)
                mine = [row for row in chosen if row.shape == shape.name]
                if not mine:
                    continue
                contest.measure(mine, rounds, not options.rates)
                versions |= contest.versions
                found = {
                    "machine": facts(versions), "busy": busy.look(), "took_s": round(time.time() - begin),
                    "rounds": rounds, "seconds": seconds, "quick": options.quick,
                    "rows": [row.to_json() for row in chosen if row.runs or row.note],
                }  # fmt: skip
                store(options.json, found)  # what there is, should the next shape fail after an hour
    except BaseException:
        if not place.interrupted:
            raise
        print("interrupted; the data is removed", file=sys.stderr)
        return 130
    print("\n" + tables(found) + "\n")
    print(json.dumps({name: value for name, value in found.items() if name != "rows"}, indent=2))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Measure Redox beside what people use today, on fast and on slow storage.",
        epilog="Rows are shape/store/loader; --list names them. benchmarks/README.md says what the columns mean.",
    )
    parser.add_argument("--quick", action="store_true", help="one short round over less data; not for conclusions")
    parser.add_argument("--rounds", type=int, help="how often (5, quick 1)")
    parser.add_argument("--seconds", type=float, help="of a run at most, after its first batch (10, quick 1.5)")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="rows that start or match so")
    parser.add_argument("--workers", type=_numbers, default=[0, 2], metavar="0,2", help="numbers of workers to try")
    parser.add_argument("--rates", action="store_true", help="leave mixing, memory, resuming and killing out")
    parser.add_argument("--list", action="store_true", help="name the rows and end")
    parser.add_argument("--json", type=Path, metavar="FILE", help="store rows, all rounds, machine, versions, commit")
    parser.add_argument("--dir", type=Path, help="where the data is (a tmpfs, else the temporary folder)")
    parser.add_argument("--disk", type=Path, help="where everything else is (the temporary folder)")
    return parser.parse_args()


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
