"""MosaicML Streaming: MDS shards on the store itself, py1e shuffle (its default), its StreamingDataLoader."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from harness.data import Shape, collated, ready, value
from streaming import MDSWriter, StreamingDataLoader, StreamingDataset
from streaming.base.util import clean_stale_shared_memory

PACKAGE = "mosaicml-streaming"


def write(path: Path, rows: Iterable[tuple[int, bytes]], shape: Shape) -> None:
    """Write shards of 32 MB."""
    kind = "bytes" if shape.kind in ("bytes", "jpeg") else "ndarray"
    with MDSWriter(out=str(path), columns={"x": kind, "label": "int"}, size_limit=32 << 20) as writer:
        for label, row in rows:
            writer.write({"x": value(shape, row), "label": label})


def _collated(shape: Shape, samples: list[dict[str, Any]]) -> tuple[Any, list[int]]:
    return collated([(ready(shape, s["x"]) if isinstance(s["x"], bytes) else s["x"], s["label"]) for s in samples])


def load(path: Path, shape: Shape, workers: int, cache: Path, remote: bool = False) -> Iterable[Any]:
    """Return a StreamingDataLoader over shards that are read where they are, or copied first (`remote`)."""
    clean_stale_shared_memory()  # of a run that was killed
    where = {"remote": str(path), "local": str(cache)} if remote else {"local": str(path)}
    data = StreamingDataset(**where, shuffle=True, batch_size=shape.batch)
    return StreamingDataLoader(
        data, batch_size=shape.batch, num_workers=workers, persistent_workers=workers > 0,
        collate_fn=partial(_collated, shape),
    )  # fmt: skip


def state(loader: Any) -> Any:
    """Return where it stands."""
    return loader.state_dict()


def resume(loader: Any, state: Any) -> None:
    """Go on there."""
    loader.load_state_dict(state)
