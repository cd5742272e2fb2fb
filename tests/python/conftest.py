"""Small data sets for the tests, packed once a session.

Sample number i of each source is a function of i alone (`pixels`), so a test can tell from a sample's content which one
it is, and that its bytes are right.
"""

from __future__ import annotations

import itertools
import shutil
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redox

SHAPE = (3, 8, 8)
SIZE = 192  # bytes of one sample's pixels

Pack = Callable[..., str]

# A shell that runs the suite in the background ignores SIGINT, and children inherit that: what is tested with Ctrl-C
# would never see it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pixels(number: int) -> np.ndarray:
    """The array of source sample `number`: uint8 `[3, 8, 8]`, its first 4 bytes the number itself."""
    values = (np.arange(SIZE, dtype=np.uint64) * 2654435761 + number * 40503) >> 7
    array = values.astype(np.uint8)
    array[:4] = np.frombuffer(np.uint32(number).tobytes(), np.uint8)
    return array.reshape(SHAPE)


def number_of(array: Any) -> int:
    """The number of the sample that an array (or tensor) of pixels is, checked byte by byte."""
    array = np.asarray(array)
    number = int(np.frombuffer(array.reshape(-1)[:4].tobytes(), np.uint32)[0])
    np.testing.assert_array_equal(array, pixels(number))
    return number


def joined(lists: Iterable[list[Any]]) -> list[Any]:
    """The elements of several lists in one."""
    return list(itertools.chain.from_iterable(lists))


def copied(path: str, tmp_path: Path) -> Path:
    """A copy of a data set, to be damaged."""
    return Path(shutil.copytree(path, tmp_path / "copy"))


def write(path: Path | str, samples: Iterable[Any], **options: Any) -> str:
    """Pack samples into a data set of small chunks."""
    with redox.Writer(path, **{"chunk_size": "8kb", "codec": "none", **options}) as writer:
        for sample in samples:
            writer.write(sample)
    return str(path)


@pytest.fixture(scope="session")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    """Pack once a session: `pack(n=1000, layout="tuple")` is `(pixels, number)` samples, about 40 to a chunk."""
    made: dict[Any, str] = {}
    serial = itertools.count()

    def packed(n: int = 1000, layout: str = "tuple", **options: Any) -> str:
        name = (n, layout, tuple(sorted(options.items())))
        if name not in made:
            folder = tmp_path_factory.mktemp("data") / f"{next(serial)}.redox"
            made[name] = write(folder, map(_LAYOUTS[layout], range(n)), **options)
        return made[name]

    return packed


_LAYOUTS: dict[str, Callable[[int], Any]] = {
    "tuple": lambda i: (pixels(i), i),
    "dict": lambda i: {"image": pixels(i), "label": i, "text": f"sample {i}"},
    "scalar": pixels,
    "ragged": lambda i: {
        "data": b"%d:" % i + bytes(i % 97),
        "text": "ä" * (i % 5),
        "meta": {"i": i, "l": [i] * (i % 3)},
    },
}


@pytest.fixture
def image_folder(tmp_path: Path) -> str:
    """40 tiny PNG files in 4 classes, packed: sample i has colour (i, 2i, 3i) and label i % 4."""
    pil = pytest.importorskip("PIL.Image")
    root = tmp_path / "images"
    for i in range(40):
        folder = root / f"class{i % 4}"
        folder.mkdir(parents=True, exist_ok=True)
        pil.new("RGB", (5, 4), (i, 2 * i, 3 * i)).save(folder / f"{i:03}.png")
    redox.pack(root, tmp_path / "images.redox", chunk_size="1kb")
    return str(tmp_path / "images.redox")
