"""LitData: chunks by `optimize`'s writer, StreamingDataset shuffled, its own StreamingDataLoader."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from harness.data import Shape, collated, ready, value
from litdata import StreamingDataLoader, StreamingDataset
from litdata.streaming.writer import BinaryWriter

PACKAGE = "litdata"


def write(path: Path, rows: Iterable[tuple[int, bytes]], shape: Shape) -> None:
    """Write chunks of 32 MB, as `litdata.optimize` does in its one worker."""
    path.mkdir()
    writer = BinaryWriter(str(path), chunk_bytes="32MB")
    for index, (label, row) in enumerate(rows):
        writer[index] = {"x": value(shape, row), "label": label}
    writer.done()
    writer.merge()


def _collated(shape: Shape, samples: list[dict[str, Any]]) -> tuple[Any, list[int]]:
    return collated([(_ready(shape, sample["x"]), sample["label"]) for sample in samples])


def _ready(shape: Shape, x: Any) -> Any:
    # Bytes come as views of its mapping, which neither outlive it nor go from a worker to the trainer.
    return ready(shape, bytes(x)) if isinstance(x, bytes | memoryview) else x


def load(path: Path, shape: Shape, workers: int, cache: Path, remote: bool = False) -> Iterable[Any]:
    """Return a StreamingDataLoader that shuffles, over chunks that are read where they are, or copied first."""
    where: dict[str, Any] = (
        {"input_dir": f"local:{path}", "cache_dir": str(cache)} if remote else {"input_dir": str(path)}
    )
    return StreamingDataLoader(
        StreamingDataset(**where, shuffle=True), batch_size=shape.batch, num_workers=workers,
        persistent_workers=workers > 0, collate_fn=partial(_collated, shape),
    )  # fmt: skip


def state(loader: Any) -> Any:
    """Return where it stands."""
    return loader.state_dict()


def resume(loader: Any, state: Any) -> None:
    """Go on there."""
    loader.load_state_dict(state)
