"""Hugging Face datasets: Parquet, `streaming=True`, shards and a buffer of 1,000 shuffled, torch's DataLoader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
from datasets import load_dataset
from torch.utils.data import DataLoader

from harness.data import Shape, collated, ready

PACKAGE = "datasets"
PACKED = True
SHARDS = 16
GROUP = 1000  # rows


def write(path: Path, rows: Iterable[tuple[int, bytes]], shape: Shape) -> None:
    """Write Parquet files, uncompressed, as the samples are random or encoded."""
    path.mkdir()
    everything = list(rows)
    each = -(-len(everything) // SHARDS)
    for shard, first in enumerate(range(0, len(everything), each)):
        labels, values = zip(*everything[first : first + each], strict=True)
        table = pa.table({"x": pa.array(values, pa.large_binary()), "label": pa.array(labels)})
        parquet.write_table(table, path / f"{shard:04d}.parquet", row_group_size=GROUP, compression="none")


def _collated(shape: Shape, samples: list[dict[str, Any]]) -> tuple[Any, list[int]]:
    return collated([(ready(shape, sample["x"]), sample["label"]) for sample in samples])


class Epochs:
    """Each epoch in its own order, as `set_epoch` is for."""

    def __init__(self, path: Path, shape: Shape, workers: int) -> None:
        files = sorted(str(file) for file in path.glob("*.parquet"))
        data = load_dataset("parquet", data_files=files, split="train", streaming=True)
        self.data = data.shuffle(seed=0, buffer_size=1000)
        self._loader = DataLoader(
            self.data, shape.batch, num_workers=workers, persistent_workers=workers > 0,
            collate_fn=partial(_collated, shape),
        )  # fmt: skip
        self._epoch = 0

    def __iter__(self) -> Iterator[Any]:
        self.data.set_epoch(self._epoch)
        self._epoch += 1
        return iter(self._loader)


def load(path: Path, shape: Shape, workers: int, cache: Path) -> Iterable[Any]:
    """Return a loader."""
    return Epochs(path, shape, workers)
