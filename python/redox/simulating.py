"""`redox.simulate`: what an epoch would cost, told from the plan without reading data."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from . import _native
from .info import mixing_advice
from .sizes import parse_size


class Report(dict[str, Any]):
    """What `simulate` found, by name; `report.reads` is `report["reads"]`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the report has no {name!r}; it has {', '.join(self)}") from None

    def to_json(self) -> dict[str, Any]:
        """Everything, as plain values."""
        return dict(self)


def simulate(
    path: str | os.PathLike[str],
    *,
    batch_size: int,
    world_size: int = 1,
    nodes: int | Sequence[int] = 1,
    memory_limit: int | str = "auto",
    window: int | None = None,
    partitions: int | None = None,
    epoch: int = 0,
    seed: int = 0,
    shuffle: bool = True,
    drop_last: bool = False,
    exchange: str | float = "local",
    keep: str = "epoch",
    subset: tuple[float, float] | tuple[int, int] | None = None,
) -> Report:
    """Plans an epoch and counts: reads, memory, mixing, what crosses the network, loads before the first batch.

    `advice` in the report says what to do about poor mixing, and is None if it is good.

    Args:
        path: the data set.
        batch_size: samples a batch and rank.
        world_size: ranks.
        nodes: how many nodes they are on.
        memory_limit: bytes a node may hold, `"auto"` for what is needed.
        window, partitions, shuffle, drop_last, exchange, keep, subset: as in `redox.RedoxDataset`.
        epoch, seed: which epoch of which order.

    Raises:
        ValueError: a wrong option.
        MemoryLimitError: `memory_limit` is too small for the window.
    """
    options: dict[str, Any] = {
        "batch_size": batch_size,
        "world_size": world_size,
        "nodes": nodes,
        "memory_limit": memory_limit if memory_limit == "auto" else parse_size(memory_limit, "memory_limit"),
        "window": window,
        "partitions": partitions,
        "epoch": epoch,
        "seed": seed,
        "shuffle": shuffle,
        "drop_last": drop_last,
        "exchange": exchange,
        "keep": keep,
        "subset": None if subset is None else list(subset),
    }
    dataset = _native.dataset_open(os.fspath(path))
    try:
        report = Report(_native.simulate(dataset, {k: v for k, v in options.items() if v is not None}))
        shuffled = bool(_native.dataset_info(dataset)["shuffled"])
        report["advice"] = mixing_advice(report["vif"], report["window"], shuffled) if shuffle else None
        return report
    finally:
        _native.dataset_close(dataset)
