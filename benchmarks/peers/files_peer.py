"""torch's DataLoader over one file for each sample: what most people begin with."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness.data import Shape, collated, ready, write_named
from torch.utils.data import DataLoader, Dataset

PACKAGE = ""


def write(path: Path, rows: Iterable[tuple[int, bytes]], shape: Shape) -> None:
    """Write the files."""
    write_named(path, rows)


class Files(Dataset[tuple[Any, int]]):
    """The samples, as the trainer wants them."""

    def __init__(self, root: Path, shape: Shape) -> None:
        self._paths = [str(path) for path in sorted(root.glob("*/*"))]
        self._shape = shape

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        with open(self._paths[index], "rb") as file:
            return ready(self._shape, file.read()), index


def load(path: Path, shape: Shape, workers: int, cache: Path) -> Iterable[Any]:
    """Return a DataLoader that shuffles."""
    return DataLoader(
        Files(path, shape), shape.batch, shuffle=True, num_workers=workers, persistent_workers=workers > 0,
        collate_fn=collated,
    )  # fmt: skip
