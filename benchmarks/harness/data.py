"""The data of the rows: random bytes, the same for all that are compared, with the sample's number as its label."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

DATA_BYTES = 1 << 30  # as much as limits.c reads
FILES = 2000  # in one folder


@dataclass(frozen=True)
class Shape:
    """Samples of one size."""

    name: str
    size: int
    batch: int
    kind: str  # as redox.Writer calls it

    @property
    def samples(self) -> int:
        """How many there are."""
        return DATA_BYTES // self.size


SMALL = Shape("3KB", 3072, 256, "uint8[3072]")
LARGE = Shape("110KB", 110 << 10, 64, "bytes")


def random_rows(shape: Shape, samples: int) -> Iterator[bytes]:
    """Yield samples; the same ones in every call."""
    random = np.random.default_rng(0)
    for first in range(0, samples, 1024):
        rows = random.integers(0, 256, (min(1024, samples - first), shape.size), dtype=np.uint8)
        for row in rows:
            yield row.tobytes()


def write_redox(shape: Shape, path: Path, samples: int) -> None:
    """Pack them, with the default chunk size."""
    import redox

    with redox.Writer(path, fields={"x": shape.kind, "label": "int"}, shuffle=False) as writer:
        for label, row in enumerate(random_rows(shape, samples)):
            value = np.frombuffer(row, np.uint8) if shape.kind != "bytes" else row
            writer.write({"x": value, "label": label})


def write_flat(shape: Shape, path: Path, samples: int) -> None:
    """Write them one after the other, for a mapping of the whole file."""
    with path.open("wb") as file:
        for row in random_rows(shape, samples):
            file.write(row)


def write_files(shape: Shape, root: Path, samples: int) -> None:
    """Write one file per sample, named by its number."""
    for label, row in enumerate(random_rows(shape, samples)):
        path = file_of(root, label)
        if label % FILES == 0:
            path.parent.mkdir(parents=True)
        path.write_bytes(row)


def file_of(root: Path | str, label: int) -> Path:
    """Return where the file of a sample is."""
    return Path(root) / f"{label // FILES:04d}" / f"{label:08d}"
