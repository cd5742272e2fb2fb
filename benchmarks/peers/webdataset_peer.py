"""WebDataset: tar shards, shards shuffled by split, a shuffle buffer, batches in the pipeline, WebLoader."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import webdataset as wds
from harness.data import Shape, collated, ready

PACKAGE = "webdataset"
SHARD = 32 << 20  # bytes


def write(path: Path, rows: Iterable[tuple[int, bytes]], shape: Shape) -> None:
    """Write tars of bytes and a number."""
    path.mkdir()
    with wds.ShardWriter(str(path / "%06d.tar"), maxcount=1e9, maxsize=SHARD, verbose=0) as sink:
        for label, row in rows:
            sink.write({"__key__": f"{label:08d}", "x.bin": row, "label.cls": label})


def load(path: Path, shape: Shape, workers: int, cache: Path) -> Iterable[Any]:
    """Return a WebLoader: a shuffle buffer of 1,000 samples."""
    urls = sorted(str(tar) for tar in path.glob("*.tar"))
    data = (
        wds.WebDataset(urls, shardshuffle=len(urls), nodesplitter=wds.split_by_node)
        .shuffle(1000)
        .decode()
        .to_tuple("x.bin", "label.cls")
        .map_tuple(partial(ready, shape))
        .batched(shape.batch, collation_fn=collated)
    )
    return wds.WebLoader(data, batch_size=None, num_workers=workers, persistent_workers=workers > 0)
