"""The data of the rows: random bytes, the same for all that are compared, with the sample's number as its label."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

DATA_BYTES = 1 << 30  # as much as limits.c reads
FILES = 2000  # in one folder
LARGEST = 2 << 20  # bytes of a sample whose size is drawn


@dataclass(frozen=True)
class Shape:
    """Samples of one kind: of one size, or of sizes drawn from a log-normal distribution, or encoded images."""

    name: str
    size: int  # in the mean
    batch: int
    kind: str  # as redox.Writer calls it
    sigma: float = 0

    @property
    def samples(self) -> int:
        """How many there are."""
        return DATA_BYTES // self.size


SMALL = Shape("3KB", 3072, 256, "uint8[3072]")
LARGE = Shape("110KB", 110 << 10, 64, "bytes")
VARIED = Shape("110KB-varied", 108_800, 64, "bytes", 0.8)
IMAGES = Shape("JPEG", 57_000, 64, "jpeg")
TINY = Shape("16KB", 16 << 10, 64, "bytes")

SIDE = 224  # of a decoded image


def random_rows(shape: Shape, samples: int) -> Iterator[bytes]:
    """Yield samples; the same ones in every call."""
    random = np.random.default_rng(0)
    if shape.kind == "jpeg":
        yield from (_image(random) for _ in range(samples))
        return
    for first in range(0, samples, 1024):
        count = min(1024, samples - first)
        if not shape.sigma:
            for row in random.integers(0, 256, (count, shape.size), dtype=np.uint8):
                yield row.tobytes()
            continue
        sizes = random.lognormal(np.log(shape.size) - shape.sigma**2 / 2, shape.sigma, count)
        for size in np.clip(sizes, 1, LARGEST).astype(int):
            yield random.bytes(size)


def _image(random: np.random.Generator) -> bytes:
    """Return a JPEG of about 400 x 350: smooth shapes and some noise, which compress as photographs do."""
    from PIL import Image

    width, height = int(random.integers(360, 441)), int(random.integers(310, 391))
    coarse = Image.fromarray(random.integers(0, 256, (9, 10, 3), dtype=np.uint8)).resize((width, height), 3)
    noise = random.integers(0, 24, (height, width, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(np.asarray(coarse) // 2 + noise).save(file, "JPEG", quality=90)
    return file.getvalue()


def write_redox(shape: Shape, path: Path, samples: int) -> None:
    """Pack them, with the default chunk size."""
    import redox

    with redox.Writer(path, fields={"x": shape.kind, "label": "int"}, shuffle=False) as writer:
        for label, row in enumerate(random_rows(shape, samples)):
            writer.write({"x": value(shape, row), "label": label})


def write_flat(shape: Shape, path: Path, samples: int) -> None:
    """Write them one after the other, for a mapping of the whole file."""
    with path.open("wb") as file:
        for row in random_rows(shape, samples):
            file.write(row)


def write_files(shape: Shape, root: Path, samples: int) -> None:
    """Write one file per sample, named by its number."""
    write_named(root, enumerate(random_rows(shape, samples)))


def write_named(root: Path, rows: Iterable[tuple[int, bytes]]) -> None:
    """Write one file per sample, named by its number; a folder of its own for each 2,000."""
    for label, row in rows:
        path = file_of(root, label)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(row)


def file_of(root: Path | str, label: int) -> Path:
    """Return where the file of a sample is."""
    return Path(root) / f"{label // FILES:04d}" / f"{label:08d}"


# ---- samples as loaders take and give them ----------------------------------------------------------------------


def value(shape: Shape, row: bytes) -> Any:
    """Return a sample as its writer wants it: an array where it is one, else bytes."""
    return np.frombuffer(row, np.uint8) if shape.kind.startswith("uint8") else row


def ready(shape: Shape, row: bytes) -> Any:
    """Return a sample as the trainer wants it: an array of its own, bytes, or the decoded image."""
    if shape.kind == "jpeg":
        return decoded(row)
    return np.frombuffer(row, np.uint8).copy() if shape.kind.startswith("uint8") else row


def decoded(row: bytes) -> Any:
    """Decode an image to `uint8[3, 224, 224]`, in all loaders alike."""
    from PIL import Image

    return scaled(Image.open(io.BytesIO(row)))


def scaled(image: Any) -> Any:
    """Return a PIL image as `uint8[3, 224, 224]`."""
    pixels = np.asarray(image.convert("RGB").resize((SIDE, SIDE), 2))
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def collated(samples: list[tuple[Any, int]]) -> tuple[Any, list[int]]:
    """Return a batch: arrays stacked to a tensor, bytes as a list; and the labels."""
    import torch

    values = [value for value, _ in samples]
    stacked: Any = values
    if not isinstance(values[0], bytes):
        stacked = torch.from_numpy(np.stack([np.asarray(value) for value in values]))
    return stacked, [int(label) for _, label in samples]


class Source:
    """Samples made once, one after the other in a file that is mapped, to be written in every format from."""

    def __init__(self, path: Path | str) -> None:
        self._ends = np.load(Path(path, "ends.npy"))
        self._data = np.memmap(Path(path, "data"), np.uint8, "r")

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def sizes(self) -> np.ndarray:
        """Bytes of each sample."""
        return np.diff(self._ends, prepend=0)

    def __getitem__(self, label: int) -> bytes:
        return self._data[self._ends[label - 1] if label else 0 : self._ends[label]].tobytes()

    def rows(self, shuffled: bool) -> Iterator[tuple[int, bytes]]:
        """Yield number and bytes of each sample, in order or in one seeded random order."""
        order = np.random.default_rng(1).permutation(len(self)) if shuffled else np.arange(len(self))
        for label in order.tolist():
            yield label, self[label]


def write_source(shape: Shape, path: Path, samples: int) -> Source:
    """Make the samples of a `Source`."""
    path.mkdir()
    ends: list[int] = []
    with (path / "data").open("wb") as file:
        for row in random_rows(shape, samples):
            file.write(row)
            ends.append(file.tell())
    np.save(path / "ends.npy", np.array(ends, np.int64))
    return Source(path)
