"""The options that `redox.pack` and `redox.Writer` share, checked when they are given."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from .sizes import parse_size

CODECS = ("auto", "lz4", "none")
_MIN_CHUNK = 1 << 10
_MIN_SHARD = 4 << 10


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """How a data set is written. The meanings are those of `redox.pack`."""

    shuffle: bool = True
    seed: int = 0
    codec: str = "auto"
    chunk_size: int | str = "auto"
    shard_size: int | str = "256mb"
    workers: int | None = None
    overwrite: bool = False
    resume: bool = True

    def __post_init__(self) -> None:
        for name in ("shuffle", "overwrite", "resume"):
            flag(name, getattr(self, name))
        if not is_int(self.seed) or not 0 <= self.seed < 1 << 64:
            raise ValueError(f"seed={self.seed!r}: expected an integer from 0 to 2**64 - 1")
        choice("codec", self.codec, CODECS)
        if self.workers is not None and (not is_int(self.workers) or not 0 <= self.workers <= 1024):
            raise ValueError(f"workers={self.workers!r}: expected a number of processes from 0 to 1024, or None")
        _ = self.chunk_bytes, self.shard_bytes

    @property
    def chunk_bytes(self) -> int:
        """Raw bytes a chunk; 0 for "auto"."""
        if isinstance(self.chunk_size, str) and self.chunk_size == "auto":
            return 0
        return parse_size(self.chunk_size, "chunk_size", _MIN_CHUNK, instead='"auto"')

    @property
    def shard_bytes(self) -> int:
        """Bytes a shard file."""
        return parse_size(self.shard_size, "shard_size", _MIN_SHARD)

    def content(self) -> dict[str, Any]:
        """The options that decide what is written, as the core takes them."""
        return {
            "shuffle": self.shuffle,
            "seed": int(self.seed),
            "codec": self.codec,
            "chunk_size": self.chunk_bytes,
            "shard_size": self.shard_bytes,
        }

    def native(self) -> dict[str, Any]:
        """All options, as the core takes them."""
        return {**self.content(), "workers": self.workers or 0, "overwrite": self.overwrite, "resume": self.resume}


def is_int(value: object) -> bool:
    """Whether this is an integer, not a truth value."""
    return hasattr(value, "__index__") and not isinstance(value, bool)


def flag(option: str, value: object) -> None:
    """ValueError unless this is True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{option}={value!r}: expected True or False")


def choice(option: str, value: object, choices: tuple[str, ...]) -> None:
    """ValueError unless this is one of the choices."""
    if value not in choices:
        raise ValueError(f"{option}={value!r}: expected one of {', '.join(map(repr, choices))}")


def cores() -> int:
    """The processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
