"""From a task to encoded records: load, transform, encode, with every failure tied to its sample.

For `packing`. Runs in its worker processes, so what goes in and comes out is small and picklable.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from .encode import Encoder, Record
from .errors import Error, SkipSample, StorageError
from .sources import Bad, Source, Task
from .workers import sendable

Transform = Callable[[Any], Any]


class Made(NamedTuple):
    """What became of one source sample: usually one record, none if it was dropped, any number of a generator's."""

    number: int
    key: str | None
    records: list[Record]


class Refused(NamedTuple):
    """A sample that does not fit the schema: never skipped, or the data set would be silently another one."""

    error: Exception


class Maker:
    """Makes samples of a source's tasks.

    Args:
        source: whose tasks.
        transform: the user's, or None.
    """

    def __init__(self, source: Source, transform: Transform | None) -> None:
        self._source = source
        self._transform = transform
        #: Whether the transform makes several samples of one: known at once, or from what it gives first.
        call = type(transform).__call__ if transform is not None else None
        self.many = inspect.isgeneratorfunction(transform) or inspect.isgeneratorfunction(call)

    def samples(self, task: Task) -> list[Any] | Bad:
        """The samples of a task, after the transform."""
        try:
            sample = self._source.load(task)
            if self._transform is None:
                return [sample]
            result = self._transform(self._source.prepare(sample))
            if not isinstance(result, types.GeneratorType):
                return [result]
            self.many = True
            return list(result)
        except SkipSample:
            return []
        except Exception as error:
            return Bad(task.number, task.key, sendable(error))

    def encoding(self, encoder: Encoder) -> Encoding:
        """The same, on to records."""
        return Encoding(self, encoder)


class Encoding:
    """Makes records of tasks."""

    def __init__(self, maker: Maker, encoder: Encoder) -> None:
        self._maker = maker
        self._encoder = encoder

    def __call__(self, task: Task) -> Made | Bad | Refused:
        samples = self._maker.samples(task)
        return samples if isinstance(samples, Bad) else self.finish(task, samples)

    def finish(self, task: Task, samples: list[Any]) -> Made | Refused:
        """Encodes a task's samples."""
        try:
            return Made(task.number, task.key, [self._encoder(sample, task.number) for sample in samples])
        except Exception as error:
            return Refused(sendable(error))


def raised(bad: Bad) -> NoReturn:
    """Raises a sample's failure as what it was, with the sample's number in its words."""
    error = bad.error
    where = f"sample {bad.number}" + (f" ({bad.key})" if bad.key is not None else "")
    if isinstance(error, Error):
        raise error
    if isinstance(error, OSError):
        path = error.filename if isinstance(error.filename, str) else None
        raise StorageError(f"{where}: {error}", path=path, errno=error.errno) from error
    for kind in (type(error), ValueError if isinstance(error, ValueError) else RuntimeError):
        try:
            told = kind(f"{where}: {error}")
        except Exception:  # exceptions may want any arguments
            continue
        raise told from error
    raise RuntimeError(f"{where}: {error}") from error
