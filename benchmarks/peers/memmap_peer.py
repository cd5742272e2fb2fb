"""torch's DataLoader over `numpy.memmap`: arrays of one size in one file, a whole batch by fancy indexing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness.data import Shape
from torch.utils.data import DataLoader, Dataset

PACKAGE = ""


def write(path: Path, rows: Iterable[tuple[int, bytes]], shape: Shape) -> None:
    """Write the arrays one after the other."""
    with path.open("wb") as file:
        file.writelines(row for _, row in rows)


class Rows(Dataset[Any]):
    """Batches out of the mapping."""

    def __init__(self, path: Path, size: int) -> None:
        self._rows = np.memmap(path, np.uint8, "r").reshape(-1, size)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitems__(self, indices: list[int]) -> tuple[torch.Tensor, list[int]]:
        return torch.from_numpy(self._rows[indices]), indices


def _same(batch: Any) -> Any:
    return batch


def load(path: Path, shape: Shape, workers: int, cache: Path) -> Iterable[Any]:
    """Return a DataLoader that shuffles and gathers whole batches."""
    return DataLoader(
        Rows(path, shape.size), shape.batch, shuffle=True, num_workers=workers, persistent_workers=workers > 0,
        collate_fn=_same,
    )  # fmt: skip
