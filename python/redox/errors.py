"""The exceptions of Redox, one class for each thing that can go wrong.

Every class derives from `Error` and from the built-in exception that a caller would catch without knowing Redox.
Each can be built from one string (PyTorch re-raises the errors of its worker processes that way) and pickled with its
attributes; the message alone says everything, the attributes only spare parsing it.

`ValueError` for a wrong option, `TypeError` for a wrong sample, `FileExistsError` for a target that is in use and
`IndexError` / `KeyError` for a sample that is not there are raised as they are.
"""

from __future__ import annotations

import errno
from typing import Any

__all__ = [
    "ClosedError",
    "CorruptError",
    "EngineError",
    "Error",
    "ForkError",
    "FormatError",
    "MemoryLimitError",
    "NotADatasetError",
    "PeerError",
    "SkipSample",
    "StallError",
    "StateError",
    "StorageError",
]


class Error(Exception):
    """Base of all errors of Redox.

    Args:
        message: What happened, to what, and what to do about it.
        **attributes: Set on the exception under these names.
    """

    def __init__(self, message: str = "", **attributes: Any) -> None:
        # BaseException.__init__ by name: OSError's own would ask the system for a message.
        Exception.__init__(self, message)
        for name, value in attributes.items():
            setattr(self, name, value)

    def __new__(cls, message: str = "", **attributes: Any) -> Error:
        """Keep the attributes away from the built-in bases, which take no keywords."""
        return super().__new__(cls, message)

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        attributes = dict(self.__dict__)
        number = getattr(self, "errno", None)  # OSError keeps it outside __dict__
        if number is not None:
            attributes["errno"] = number
        return _rebuild, (type(self), str(self), attributes)


def _rebuild(cls: type[Error], message: str, attributes: dict[str, Any]) -> Error:
    """Undo `Error.__reduce__`."""
    error = cls(message)
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


class NotADatasetError(Error, FileNotFoundError):
    """There is no manifest, or a half-packed data set. `path`: where it was looked for; `errno`: ENOENT."""

    path: str | None = None

    def __init__(self, message: str = "", **attributes: Any) -> None:
        super().__init__(message, **{"errno": errno.ENOENT, **attributes})


class FormatError(Error, ValueError):
    """The files are not ours, of a newer version, or contradict each other. `path`: which one."""

    path: str | None = None


class CorruptError(Error, OSError):
    """A checksum or a structure is wrong. `shard`, `chunk` and (stored number of the) `sample` where they are known."""

    path: str | None = None
    shard: int | None = None
    chunk: int | None = None
    sample: int | None = None


class StorageError(Error, OSError):
    """Storage failed, after its retries. `path`: which file; `errno`: the system's word on it."""

    path: str | None = None


class MemoryLimitError(Error, ValueError):
    """`memory_limit` is too small for the window.

    `needed`: bytes that this configuration takes at least; `given`: the limit in bytes; `window`: the largest window
    (chunks) that fits into it.
    """

    needed: int | None = None
    given: int | None = None
    window: int | None = None


class StateError(Error, ValueError):
    """A state that does not fit the data set or its options, or that can't be told."""


class PeerError(Error, ConnectionError):
    """A peer is lost and storage can't stand in for it, or it refused us. `peer`: which one."""

    peer: str | None = None


class StallError(Error, TimeoutError):
    """Nothing came within `timeout`; the message names what it waited for: `chunk` and `shard`, if it was a chunk.

    What the engine was doing meanwhile is in the log (the `redox` logger).
    """

    shard: int | None = None
    chunk: int | None = None


class EngineError(Error, RuntimeError):
    """The engine ended, could not start, or met a bug of ours."""


class ForkError(Error, RuntimeError):
    """The C library was called in a process forked after it had been loaded."""


class ClosedError(Error, ValueError):
    """Used after `close()`."""


class SkipSample(Exception):  # noqa: N818 - a signal to the loader, not an error
    """Raised by a transform to leave a sample out.

    While packing, the sample is dropped. While loading, it needs `on_error="skip"`: the sample's place in its batch is
    then taken by another sample of the batch, so that all batches keep their size.
    """
