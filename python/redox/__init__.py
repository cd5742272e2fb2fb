"""Redox: training data in chunks, each read once per epoch, delivered in a well-mixed and reproducible order.

    >>> redox.pack("train/", "train.redox")                             # doctest: +SKIP
    >>> ds = redox.RedoxDataset("train.redox", batch_size=256)          # doctest: +SKIP
    >>> loader = torch.utils.data.DataLoader(ds, batch_size=256)        # doctest: +SKIP

Importing this package imports none of its parts, neither NumPy, PyTorch nor Pillow, and loads no library: each name
below is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redox.dataset import Dataset, open  # noqa: A004 - redox.open is read as one name
    from redox.errors import (
        ClosedError,
        CorruptError,
        EngineError,
        Error,
        ForkError,
        FormatError,
        MemoryLimitError,
        NotADatasetError,
        PeerError,
        SkipSample,
        StallError,
        StateError,
        StorageError,
    )
    from redox.info import Info
    from redox.iterable import RedoxDataset
    from redox.loader import DataLoader
    from redox.mapped import MapDataset
    from redox.packing import pack
    from redox.simulating import Report, simulate
    from redox.splitting import split
    from redox.writer import Writer

__all__ = [
    "ClosedError",
    "CorruptError",
    "DataLoader",
    "Dataset",
    "EngineError",
    "Error",
    "ForkError",
    "FormatError",
    "Info",
    "MapDataset",
    "MemoryLimitError",
    "NotADatasetError",
    "PeerError",
    "RedoxDataset",
    "Report",
    "SkipSample",
    "StallError",
    "StateError",
    "StorageError",
    "Writer",
    "__version__",
    "open",
    "pack",
    "simulate",
    "split",
]

__version__ = "0.1.0"

_ERRORS = (
    "ClosedError CorruptError EngineError Error ForkError FormatError MemoryLimitError NotADatasetError PeerError "
    "SkipSample StallError StateError StorageError"
)
_HOMES = dict.fromkeys(_ERRORS.split(), "errors") | {
    "DataLoader": "loader",
    "Dataset": "dataset",
    "Info": "info",
    "MapDataset": "mapped",
    "RedoxDataset": "iterable",
    "Report": "simulating",
    "Writer": "writer",
    "open": "dataset",
    "pack": "packing",
    "simulate": "simulating",
    "split": "splitting",
}
_FRAMEWORKS = ("hf", "lightning")  # modules, which need what they are named after


def __getattr__(name: str) -> Any:
    if name in _FRAMEWORKS:
        return import_module(f"redox.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'redox' has no attribute {name!r}")
    value = getattr(import_module(f"redox.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
