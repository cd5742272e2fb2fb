"""MosaicML Streaming: MDS shards on local disk, py1e shuffle (its default), torch's DataLoader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from streaming import MDSWriter, StreamingDataset
from streaming.base.util import clean_stale_shared_memory
from torch.utils.data import DataLoader

PACKAGE = "mosaicml-streaming"


def write(path: Path, rows: Iterator[bytes]) -> None:
    """Write shards of 64 MB, its default."""
    with MDSWriter(out=str(path), columns={"x": "ndarray", "label": "int"}) as writer:
        for label, row in enumerate(rows):
            writer.write({"x": np.frombuffer(row, np.uint8), "label": label})


def epochs(path: Path, batch: int, workers: int) -> Callable[[], Iterable[Any]]:
    """Return what starts an epoch of batches, each a dict with the labels."""
    clean_stale_shared_memory()  # of a run that was killed
    data = StreamingDataset(local=str(path), shuffle=True, batch_size=batch)
    loader = DataLoader(data, batch_size=batch, num_workers=workers, persistent_workers=workers > 0)
    return lambda: loader
