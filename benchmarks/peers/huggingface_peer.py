"""Hugging Face datasets: Parquet, `streaming=True`, shards and a buffer of 1,000 shuffled, torch's DataLoader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
from datasets import config, load_dataset
from harness.data import Shape, collated, ready
from torch.utils.data import DataLoader

PACKAGE = "datasets"
SHARDS, GROUP = 16, 1000  # files, and rows in a group of one

config.SLEEP_TIME_ON_THREADS_SHUTDOWN = 0  # 5 s at the end of each epoch, which only large data hide


def write(path: Path, rows: Iterable[tuple[int, bytes]], shape: Shape) -> None:
    """Write Parquet files, uncompressed, as the samples are random or encoded."""
    path.mkdir()
    labels, values = zip(*rows, strict=True)
    table, each = pa.table({"x": pa.array(values, pa.large_binary()), "label": labels}), -(-len(labels) // SHARDS)
    for shard, first in enumerate(range(0, len(labels), each)):
        some = table.slice(first, each)
        parquet.write_table(some, path / f"{shard:04d}.parquet", row_group_size=GROUP, compression="none")


def _collated(shape: Shape, samples: list[dict[str, Any]]) -> tuple[Any, list[int]]:
    return collated([(ready(shape, sample["x"]), sample["label"]) for sample in samples])


class Epochs(DataLoader[Any]):
    """Each epoch in an order of its own, as `set_epoch` is for."""

    def __iter__(self) -> Iterator[Any]:
        self.dataset.set_epoch(next(self.__dict__.setdefault("epochs", count())))
        return super().__iter__()


def load(path: Path, shape: Shape, workers: int, cache: Path) -> Iterable[Any]:
    """Return a loader."""
    data = load_dataset("parquet", data_dir=str(path), split="train", streaming=True).shuffle(seed=0, buffer_size=1000)
    collate = partial(_collated, shape)
    return Epochs(data, shape.batch, num_workers=workers, persistent_workers=workers > 0, collate_fn=collate)


def state(loader: Any) -> Any:
    """Return where it stands, without its buffer."""
    return loader.dataset.state_dict()


def resume(loader: Any, state: Any) -> None:
    """Go on there."""
    loader.dataset.load_state_dict(state)
