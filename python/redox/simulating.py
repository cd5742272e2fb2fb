"""`redox.simulate`: what an epoch would cost, told from the plan without reading data."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from . import _native
from .facts import Facts
from .info import mixing_advice
from .options import Options, whole
from .subset import Subset
from .world import MOST_RANKS


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
    subset: Any = None,
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
        NotADatasetError: there is no data set at `path`.

    A `memory_limit` that is too small for the window is reported: `fits` is False, `memory_needed` what it takes.
    """
    facts = Facts.read(path)
    checked = Options(
        batch_size, shuffle=shuffle, shuffle_seed=whole("seed", seed, 0, (1 << 64) - 1), drop_last=drop_last,
        memory_limit=memory_limit, window=window, partitions=64 if partitions is None else partitions,
        exchange=exchange, keep=keep, subset=Subset.parse(subset, facts.samples),
    )  # fmt: skip
    options: dict[str, Any] = {
        "batch_size": checked.batch_size,
        "world_size": whole("world_size", world_size, 1, MOST_RANKS),
        "nodes": list(nodes) if isinstance(nodes, Sequence) else whole("nodes", nodes, 1, MOST_RANKS),
        "memory_limit": checked.memory_limit,
        "window": checked.window,
        "partitions": None if partitions is None else checked.partitions,
        "epoch": whole("epoch", epoch, 0, (1 << 63) - 1),
        "seed": checked.shuffle_seed,
        "shuffle": checked.shuffle,
        "drop_last": checked.drop_last,
        "exchange": checked.exchange,
        "keep": checked.keep,
    }
    chosen = checked.subset
    if chosen is not None and chosen.bounds is not None:
        options["subset"] = list(chosen.bounds)
    dataset = _native.dataset_open(facts.path)
    held = None
    try:
        if chosen is not None and chosen.numbers is not None:
            held = options["subset_handle"] = _native.subset_new(dataset, _native.numbers_of(chosen.numbers.tolist()))
        report = Report(_native.simulate(dataset, {k: v for k, v in options.items() if v is not None}))
        shuffled = bool(_native.dataset_info(dataset)["shuffled"])
        report["advice"] = mixing_advice(report["vif"], report["window"], shuffled) if checked.shuffle else None
        return report
    finally:
        if held is not None:
            _native.subset_close(held)
        _native.dataset_close(dataset)
