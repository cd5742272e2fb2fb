#!/usr/bin/env python3
"""Measure what mixing costs Redox on a disk where samples are packed class after class: VIF against speed.

    python benchmarks/curve.py --json benchmarks/results/curve.json    # ten minutes

Chunks of 1 to 32 MiB and windows of 4 chunks to all that there are, each with `memory_limit="512mb"`, on the emulated
disk of `epoch.py` and its samples of 110 KB. Where they are shuffled when packed, as by default, VIF is 1 throughout.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness import slow
from harness.contest import SAMPLES
from harness.data import VARIED
from harness.machine import Busy, facts, store
from harness.measuring import Bench, Packed
from harness.place import MeasureError, Place
from harness.rivals import Rival
from harness.slow import DISK
from harness.table import aligned, number

CHUNKS = (1, 2, 4, 8, 16, 32)  # MiB
WINDOWS = (4, 16, 64, 256)  # chunks
MEMORY = "512mb"


def main() -> int:
    """Return 0; 1 where there can't be such a disk, or it came late every time; 130 after Ctrl-C."""
    options = _options()
    if slow.missing():
        print(f"curve.py: {slow.missing()}", file=sys.stderr)
        return 1
    busy, begin, place = Busy(), time.time(), Place(options.dir, None)
    try:
        with place:
            curve = _curve(place, options.quick)
    except BaseException:
        if not place.interrupted:
            raise
        return 130
    found = {"machine": facts({}), "busy": busy.look(), "took_s": round(time.time() - begin), "curve": curve}
    store(options.json, found)
    if not curve:
        return 1
    print(aligned(tuple(curve[0]), [tuple(number(value) for value in line.values()) for line in curve]))
    return 0


def _curve(place: Place, quick: bool) -> list[dict[str, float]]:
    """Return rate, time to the first batch and VIF for each size of chunks and window."""
    bench, source, shape = Bench(place), place.hot / "source", asdict(VARIED)
    samples = SAMPLES[VARIED.name][quick]
    size = place.child("harness.epochs.make", path=str(source), shape=shape, samples=samples)["bytes"]
    lines = []
    for mib in CHUNKS:
        path, packing = place.hot / f"packed-{mib}", {"chunk_size": f"{mib}mb"}
        what: dict[str, Any] = {"path": str(path), "source": str(source), "shape": shape, "packing": packing}
        place.child("harness.epochs.pack", peer="redox", shuffled=False, **what)
        for window in WINDOWS:
            if window > 4 * size / (mib << 20):  # the one before has all chunks
                continue
            print(f"chunks of {mib} MiB, a window of {window}", file=sys.stderr, flush=True)
            rival = Rival("Redox", "redox", options={"memory_limit": MEMORY, "window": window})
            data = Packed(rival, VARIED, source, path, samples, False, True)
            try:
                lines.append({"chunk MiB": mib, "window": window} | _point(bench, data))
            except MeasureError as error:
                print(f"{error}", file=sys.stderr)
    return lines


def _point(bench: Bench, data: Packed) -> dict[str, float]:
    """Measure one; a run whose emulator came late twice is none."""
    run = bench.rate(data, DISK, 0, 60)
    if run["void"]:
        raise MeasureError("every run was void: the emulator came late")
    return {"samples/s": run["rate"], "first batch s": run["first_s"], "VIF": bench.order(data, 0, 2)["vif"]}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure what mixing costs on a disk, packed class after class.")
    parser.add_argument("--quick", action="store_true", help="fewer samples")
    parser.add_argument("--json", type=Path, metavar="FILE", help="store it, with machine, versions, commit")
    parser.add_argument("--dir", type=Path, help="where the data is (a tmpfs, else the temporary folder)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
