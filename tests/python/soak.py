"""Many short trainings: start methods x workers x what the parent did before, each with a hard deadline.

    python tests/python/soak.py --runs 300

Each run is a process that is forked from this one, which has PyTorch and Redox imported but the library not loaded.
Runs that take longer than the deadline are killed, told and counted; so are those with wrong batches.
"""

from __future__ import annotations

import argparse
import faulthandler
import itertools
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from typing import Any

import redox
from conftest import pixels, write
from redox import _library
from torch.utils.data import DataLoader

N, B = 200, 16
METHODS = ["fork", "spawn", "forkserver"]
BEFORE = ["nothing", "used", "live iterator", "live workers", "broke off"]


def train(path: str, method: str, workers: int, before: str, persistent: bool, ours: bool) -> None:
    """One run: two epochs, every sample checked."""

    def loader(ds: Any, count: int, how: str | None) -> Any:
        options: dict[str, Any] = {"num_workers": count, "multiprocessing_context": how if count else None}
        options["persistent_workers"] = persistent and count > 0
        return redox.DataLoader(ds, **options) if ours else DataLoader(ds, B, **options)

    other = redox.RedoxDataset(path, batch_size=B)
    kept: list[Any] = []
    if before == "used":
        check(loader(other, 0, None))
    elif before in ("live iterator", "live workers"):
        kept = [iter(loader(other, int(before == "live workers"), "fork"))]
        kept.append(next(kept[0]))
    elif before == "broke off":
        for kept in loader(other, 1, method):  # noqa: B007 - the last batch is kept
            break
    ds = redox.RedoxDataset(path, batch_size=B, shuffle_seed=1)
    batches = loader(ds, workers, method)
    for epoch in range(2):
        ds.set_epoch(epoch)
        check(batches)
    if before.startswith("live"):
        check([kept[1], *kept[0]])


def check(batches: Any) -> None:
    """Raise unless these are all samples."""
    seen = []
    for images, labels in batches:
        for image, label in zip(images.numpy(), labels.tolist(), strict=True):
            assert (image == pixels(label)).all()
        seen += labels.tolist()
    assert sorted(seen) == list(range(N)), len(seen)


def run(case: tuple[Any, ...], path: str, deadline: float) -> str:
    """Run one case in a process of its own; return what is wrong with it."""
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        faulthandler.dump_traceback_later(deadline - 1)
        try:
            train(path, *case)
            os._exit(_ended())
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    end = time.monotonic() + deadline
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return "" if status == 0 else f"ended with {os.waitstatus_to_exitcode(status)}"
        time.sleep(0.01)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return f"hung for {deadline:.0f} s"


def _ended() -> int:
    """End the children of PyTorch as the interpreter would: a run that hangs in its exit hangs."""
    import multiprocessing.util

    multiprocessing.util._exit_function()  # type: ignore[attr-defined]
    return 0


def soak(runs: int, seed: int, deadline: float, methods: list[str]) -> list[str]:
    """Run so many cases, in a random order that covers all of them; return what went wrong."""
    cases = list(itertools.product(methods, (1, 2, 3), BEFORE, (False, True), (False, True)))
    order = random.Random(seed)
    order.shuffle(cases)
    folder = tempfile.mkdtemp(prefix="redox-soak-")
    wrong = []
    try:
        path = os.path.join(folder, "soak.redox")
        if os.fork() == 0:
            write(path, ((pixels(i), i) for i in range(N)))
            os._exit(0)
        os.wait()
        assert not _library._pid, "each run begins without the library"
        for number, case in enumerate(itertools.islice(itertools.cycle(cases), runs), 1):
            begun = time.monotonic()
            what = run(case, path, deadline)
            method, workers, before, persistent, ours = case
            words = f"{method}, {workers} workers{', persistent' * persistent}, {before}, {'ours' if ours else 'torch'}"
            if what:
                wrong.append(f"run {number} ({words}): {what}")
            print(f"{number:4} {time.monotonic() - begun:6.1f} s  {words}  {what}", flush=True)
    finally:
        shutil.rmtree(folder)
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--deadline", type=float, default=60, help="seconds for each run")
    parser.add_argument("--methods", default=",".join(METHODS))
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    wrong = soak(options.runs, options.seed, options.deadline, options.methods.split(","))
    for line in wrong:
        print(line)
    print(f"{options.runs} runs, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
