"""Redox itself, with its defaults: whole batches without workers where nothing is decoded in Python."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness.data import Shape, scaled, value
from redox import DataLoader, RedoxDataset, Writer

PACKAGE = ""
SHUFFLES = True  # when it packs


def write(
    path: Path, rows: Iterable[tuple[int, bytes]], shape: Shape, shuffle: bool, chunk_size: int | str = "auto"
) -> None:
    """Pack them."""
    fields = {"x": shape.kind, "label": "int"}
    with Writer(path, fields=fields, shuffle=shuffle, chunk_size=chunk_size) as writer:
        for label, row in rows:
            writer.write({"x": value(shape, row), "label": label})


def _decoded(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "x": scaled(sample["x"])}


def load(path: Path, shape: Shape, workers: int, cache: Path, **options: Any) -> Iterable[Any]:
    """Return its loader."""
    transform = _decoded if shape.kind == "jpeg" else None
    ds = RedoxDataset(path, batch_size=shape.batch, batched=transform is None, transform=transform, **options)
    return DataLoader(ds, num_workers=workers, **({"persistent_workers": True} if workers else {}))


def state(loader: Any) -> Any:
    """Return where it stands."""
    return loader.state_dict()


def resume(loader: Any, state: Any) -> None:
    """Go on there."""
    loader.load_state_dict(state)
