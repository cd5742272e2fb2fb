#!/usr/bin/env python3
"""Compare a run of `epoch.py` with a stored one: is Redox less ahead than it was?

    python benchmarks/gate.py build/epoch.json benchmarks/results/*.json

Only ratios within a run are compared, Redox to each other loader, as rates of different machines say nothing. A row is
worse when its ratio fell by more than both runs' own spread, and at least by a tenth. Exit status 1 if one is worse,
but for a run with --quick, which is not for conclusions.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

from harness.report import joined, rounds
from harness.rivals import TITLES
from harness.table import aligned, number

LEAST = 0.1  # a ratio that fell by less is not told from luck


def main() -> int:
    """Return 1 if a row is worse, 2 if nothing can be compared; a quick run is never found worse."""
    parser = argparse.ArgumentParser(description="Compare two runs of epoch.py by the ratios of Redox to the others.")
    parser.add_argument("new", type=Path, help="JSON of the new run")
    parser.add_argument("stored", type=Path, nargs="+", help="JSON of the runs to compare with")
    options = parser.parse_args()
    new, *stored = (json.loads(path.read_text(encoding="utf-8")) for path in [options.new, *options.stored])
    after, before = ratios(joined([new])), ratios(joined(stored))
    names = [name for name in before if name in after]
    if not names:
        print("gate.py: the two runs have no row in common", file=sys.stderr)
        return 2
    lines, worse = [], 0
    for name in names:
        allowed = tolerance(before[name], after[name])
        change = median(after[name]) / median(before[name])
        bad = change < 1 - allowed
        worse += bad
        lines.append((
            name, number(median(before[name])), number(median(after[name])), f"{change:.2f} x", f"{1 - allowed:.2f} x",
            "WORSE" if bad else "ok",
        ))  # fmt: skip
    print(aligned(("Redox to", "was", "is", "change", "at least", ""), lines))
    for name in sorted(before.keys() - after.keys()):
        print(f"not measured: {name}")
    return int(worse > 0 and not new["quick"])


def ratios(run: dict[str, Any]) -> dict[str, list[float]]:
    """Return for each row of others how many times as fast Redox was, in each round."""
    own = {(row["shape"], row["store"], row["shuffled"]): rounds(row) for row in run["rows"] if row["title"] == "Redox"}
    found = {}
    for row in run["rows"]:
        mine = own.get((row["shape"], row["store"], row["shuffled"] if row["packed"] else True), [])
        pairs = list(zip(mine, rounds(row), strict=False))
        if pairs and not (row["title"] in TITLES and TITLES[row["title"]].own):
            found[row["name"]] = [one / other for one, other in pairs]
    return found


def tolerance(before: list[float], after: list[float]) -> float:
    """Return by what share a ratio may fall: the spread of both runs' rounds around their medians."""
    spread = sum(max(abs(ratio / median(run) - 1) for ratio in run) for run in (before, after))
    return min(0.9, max(LEAST, spread))


if __name__ == "__main__":
    sys.exit(main())
