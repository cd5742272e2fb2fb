"""WebDataset: tar shards, shards shuffled by split, a shuffle buffer, batches in the pipeline, WebLoader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import webdataset as wds

PACKAGE = "webdataset"
SHARD = 10_000  # samples


def write(path: Path, rows: Iterator[bytes]) -> None:
    """Write tars of bytes and a number."""
    path.mkdir()
    with wds.ShardWriter(str(path / "%06d.tar"), maxcount=SHARD, verbose=0) as sink:
        for label, row in enumerate(rows):
            sink.write({"__key__": f"{label:08d}", "x.bin": row, "label.cls": label})


def epochs(path: Path, batch: int, workers: int) -> Callable[[], Iterable[Any]]:
    """Return what starts an epoch of batches, each a tuple that ends with the labels."""
    urls = sorted(str(tar) for tar in path.glob("*.tar"))
    data = (
        wds.WebDataset(urls, shardshuffle=len(urls), nodesplitter=wds.split_by_node)
        .shuffle(1000)
        .decode()
        .to_tuple("x.bin", "label.cls")
        .map_tuple(lambda row: np.frombuffer(row, np.uint8))
        .batched(batch)
    )
    loader = wds.WebLoader(data, batch_size=None, num_workers=workers, persistent_workers=workers > 0)
    return lambda: loader
