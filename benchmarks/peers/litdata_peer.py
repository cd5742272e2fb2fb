"""LitData: chunks by `optimize`'s writer, StreamingDataset shuffled, its own StreamingDataLoader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from litdata import StreamingDataLoader, StreamingDataset
from litdata.streaming.writer import BinaryWriter

PACKAGE = "litdata"


def write(path: Path, rows: Iterator[bytes]) -> None:
    """Write chunks of 64 MB, as `litdata.optimize` does in its one worker."""
    path.mkdir()
    writer = BinaryWriter(str(path), chunk_bytes="64MB")
    for label, row in enumerate(rows):
        writer[label] = {"x": np.frombuffer(row, np.uint8), "label": label}
    writer.done()
    writer.merge()


def epochs(path: Path, batch: int, workers: int) -> Callable[[], Iterable[Any]]:
    """Return what starts an epoch of batches, each a dict with the labels."""
    data = StreamingDataset(str(path), shuffle=True)
    loader = StreamingDataLoader(data, batch_size=batch, num_workers=workers, persistent_workers=workers > 0)
    return lambda: loader
