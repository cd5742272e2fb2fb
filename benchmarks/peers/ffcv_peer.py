"""FFCV: a beton, `OrderOption.QUASI_RANDOM` (for data larger than memory, says its documentation)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from ffcv.fields import BytesField, IntField, NDArrayField, RGBImageField
from ffcv.fields.decoders import BytesDecoder, CenterCropRGBImageDecoder, IntDecoder, NDArrayDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.writer import DatasetWriter
from harness.data import SIDE, Shape

PACKAGE = "ffcv"


class Rows:
    """The samples by index, as its writer wants them."""

    def __init__(self, rows: Iterable[tuple[int, bytes]], shape: Shape) -> None:
        self._rows, self._jpeg = list(rows), shape.kind == "jpeg"

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        label, row = self._rows[index]
        return (self._decoded(row) if self._jpeg else np.frombuffer(row, np.uint8)), label

    def _decoded(self, row: bytes) -> Any:
        import io

        from PIL import Image

        return Image.open(io.BytesIO(row))


def write(path: Path, rows: Iterable[tuple[int, bytes]], shape: Shape) -> None:
    """Write a beton; images are encoded anew by its own writer."""
    kinds = {"jpeg": lambda: RGBImageField("jpg"), "bytes": BytesField}
    field = kinds.get(shape.kind, lambda: NDArrayField(np.dtype(np.uint8), (shape.size,)))()
    DatasetWriter(str(path), {"x": field, "label": IntField()}, num_workers=1).from_indexed_dataset(Rows(rows, shape))


def load(path: Path, shape: Shape, workers: int, cache: Path) -> Iterable[Any]:
    """Return its loader; `workers` are threads, of which it needs one."""
    kinds = {"jpeg": lambda: CenterCropRGBImageDecoder((SIDE, SIDE), ratio=1), "bytes": BytesDecoder}
    pipeline = [kinds.get(shape.kind, NDArrayDecoder)()]
    return Loader(
        str(path), shape.batch, num_workers=max(1, workers), order=OrderOption.QUASI_RANDOM, os_cache=False,
        pipelines={"x": pipeline, "label": [IntDecoder()]},
    )  # fmt: skip
