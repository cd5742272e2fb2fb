"""The measuring processes: `python -m harness.child WAY JSON` measures one way to load and prints what it found."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from harness import tree


def timed(
    epoch: Callable[[], Iterable[Any]], count: Callable[[Any], int], warm: float, seconds: float
) -> dict[str, Any]:
    """Return the rate at which a loader gives samples, once warm.

    Args:
        epoch: Starts an epoch.
        count: The samples in a batch.
        warm: Seconds to run before measuring; 0: one whole epoch.
        seconds: How long to measure, over as many epochs as fit, their starts included.
    """
    start = time.perf_counter()
    first = 0.0
    begun: float | None = None
    samples, cpu = 0, 0.0
    while True:
        for batch in epoch():
            now = time.perf_counter()
            first = first or now - start
            if begun is None:
                if warm and now - start >= warm:
                    cpu, begun = _cpu(), time.perf_counter()
                continue
            samples += count(batch)
            if now - begun >= seconds:
                return {
                    "rate": samples / (now - begun),
                    "first_batch_s": first,
                    "rate_cpu": samples / (_cpu() - cpu),
                    "samples": samples,
                }
        if begun is None and not warm:
            cpu, begun = _cpu(), time.perf_counter()


def length(batch: Any) -> int:
    """Return the samples of a batch that is a dict with labels or a tuple that ends with them."""
    return len(batch["label"] if isinstance(batch, dict) else batch[-1])


def _cpu() -> float:
    """Return the processor time of this process and those that it has started, workers and engines."""
    if tree.VARIABLE in os.environ:
        return tree.cpu(os.environ[tree.VARIABLE])
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Run the way that the command line names, `module.function`."""
    module, _, function = sys.argv[1].rpartition(".")
    found = getattr(import_module(module), function)(**json.loads(sys.argv[2]))
    if found is not None:
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
