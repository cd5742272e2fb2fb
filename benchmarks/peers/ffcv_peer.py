"""FFCV: a beton; by default `QUASI_RANDOM` and `os_cache=False`, as its documentation wants it for data that is larger
than memory. Its bytes are all as long as the longest; their lengths are a field of their own, batches lists of views.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from ffcv.fields import BytesField, IntField, NDArrayField, RGBImageField
from ffcv.fields.decoders import BytesDecoder, CenterCropRGBImageDecoder, IntDecoder, NDArrayDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import ToTensor
from ffcv.writer import DatasetWriter
from harness.data import SIDE, Shape
from PIL import Image

PACKAGE = "ffcv"


class Rows(list[tuple[Any, int, int]]):
    """The samples by index, as its writer wants them."""

    def __getitem__(self, index: Any) -> tuple[Any, int, int]:
        row, size, label = super().__getitem__(index)
        return (np.frombuffer(row, np.uint8) if isinstance(row, bytes) else Image.open(row)), size, label


def write(path: Path, rows: Iterable[tuple[int, bytes]], shape: Shape, write_mode: str = "jpg") -> None:
    """Write a beton; images are encoded anew by its own writer, with the quality that they had."""
    kinds = {"jpeg": lambda: RGBImageField(write_mode, jpeg_quality=90), "bytes": BytesField}
    field = kinds.get(shape.kind, lambda: NDArrayField(np.dtype(np.uint8), (shape.size,)))()
    samples = Rows((io.BytesIO(row) if shape.kind == "jpeg" else row, len(row), label) for label, row in rows)
    fields = {"x": field, "size": IntField(), "label": IntField()}
    DatasetWriter(str(path), fields, num_workers=1).from_indexed_dataset(samples)


class Bytes(Loader):
    """Its batches of bytes, without what they are filled up with."""

    def __iter__(self) -> Iterator[Any]:
        for values, sizes, labels in super().__iter__():
            yield [value[:size] for value, size in zip(values, sizes[:, 0].tolist(), strict=True)], labels


def load(
    path: Path, shape: Shape, workers: int, cache: Path, order: str = "QUASI_RANDOM", os_cache: bool = False
) -> Iterable[Any]:
    """Return its loader; `workers` are threads, one at least; more than there are cores it refuses."""
    kinds = {"jpeg": [CenterCropRGBImageDecoder((SIDE, SIDE), ratio=1), ToTensor()], "bytes": [BytesDecoder()]}
    pipelines = {
        "x": kinds.get(shape.kind, [NDArrayDecoder(), ToTensor()]),
        "size": [IntDecoder()] if shape.kind == "bytes" else None, "label": [IntDecoder(), ToTensor()],
    }  # fmt: skip
    what = {"order": OrderOption[order], "os_cache": os_cache, "drop_last": False, "pipelines": pipelines}
    return (Bytes if shape.kind == "bytes" else Loader)(str(path), shape.batch, max(1, workers), **what)
