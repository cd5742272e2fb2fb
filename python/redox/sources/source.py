"""The door behind which every source format stands.

A source cuts itself into *tasks* (in the packing process, cheap, in order) and makes a sample of a task (`load`, which
may run in a worker process). A source that can be asked for any sample has tasks that are mere numbers; one that can
only be read from its beginning puts what it read into the task.
"""

from __future__ import annotations

import abc
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ..errors import StorageError


class Task(NamedTuple):
    """What is needed to make one sample.

    Attributes:
        number: the sample's place in its source.
        key: its key, or None for the number.
        body: whatever the source's `load` wants; picklable where the source reads in the packing process.
    """

    number: int
    key: str | None
    body: Any


class Bad(NamedTuple):
    """A source sample that could not be read."""

    number: int
    key: str | None
    error: Exception


OnBad = Callable[[Bad], None]


class Source(abc.ABC):
    """Samples in a fixed order.

    Attributes:
        name: what it is, for messages.
        hints: kinds that the format declares, by field name.
        classes: class names, where the format has them.
        once: whether the tasks can be asked for only once.
        costly: whether `load` itself may be worth other processes.
        doubt: what was noticed in reading that may be why a sample does not fit; "" for nothing.
    """

    name: str = "source"
    hints: Mapping[str, str] = {}
    classes: list[str] | None = None
    once: bool = False
    costly: bool = False
    doubt: str = ""

    @abc.abstractmethod
    def tasks(self, start: int, on_bad: OnBad) -> Iterator[Task]:
        """Yields the tasks of the samples from number `start` on; `on_bad` is told what could not be read."""

    @abc.abstractmethod
    def load(self, task: Task) -> Any:
        """Makes the sample of a task."""

    @abc.abstractmethod
    def identity(self) -> Iterator[str]:
        """Yields what tells this source from others: paths, sizes, times; the content where it is at hand."""

    def prepare(self, sample: Any) -> Any:
        """Makes of a loaded sample what a user's transform gets (images decoded)."""
        return sample

    @property
    def total(self) -> int | None:
        """How many samples there are, None if only reading tells."""
        return None


def storage_error(path: str | os.PathLike[str], error: OSError) -> StorageError:
    """An unreadable file as the error that `pack` promises."""
    return StorageError(
        f"can't read {os.fspath(path)}: {error.strerror or error}", path=os.fspath(path), errno=error.errno
    )


def file_identity(path: str) -> str:
    """Path, size and modification time: enough to notice that a file was replaced."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise storage_error(path, error) from None
    return f"{os.path.abspath(path)}\0{status.st_size}\0{status.st_mtime_ns}"
