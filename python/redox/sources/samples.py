"""Python objects as sources: lists, map-style and iterable data sets (torch's or anyone's), generators, arrays."""

from __future__ import annotations

import hashlib
import itertools
import sys
from collections.abc import Iterator, Mapping, Sized
from typing import Any

from ..encode import Encoder
from ..schema import infer
from .source import Bad, OnBad, Source, Task

_PROBES = 32  # samples that are looked at to tell one data set from another


class Items(Source):
    """Anything with `len()` and `[i]`."""

    name = "data set"
    costly = True

    def __init__(self, data: Any) -> None:
        self._data = data

    @property
    def total(self) -> int:
        return len(self._data)

    def tasks(self, start: int, on_bad: OnBad) -> Iterator[Task]:
        return (Task(i, None, None) for i in range(start, len(self._data)))

    def load(self, task: Task) -> Any:
        return self._data[task.number]

    def identity(self) -> Iterator[str]:
        """Type, length and content: all of it for lists in memory, else of samples spread evenly."""
        size = len(self._data)
        yield f"{type(self._data).__module__}.{type(self._data).__qualname__}\0{size}"
        plain = type(self._data) in (list, tuple)
        numbers = range(size) if plain or size <= _PROBES else [i * (size - 1) // (_PROBES - 1) for i in range(_PROBES)]
        for number in numbers:
            try:
                yield digest(self._data[number], number)
            except Exception as error:  # pack meets the same error again, and reports it by on_error
                yield f"{number} {type(error).__name__}"


class Stream(Source):
    """Anything that can only be iterated over, perhaps only once.

    Its first samples are kept when they are looked at, so that nothing is lost of a generator.
    """

    name = "iterable"
    once = True

    def __init__(self, data: Any) -> None:
        self._iterator = iter(data)
        self._type = f"{type(data).__module__}.{type(data).__qualname__}"
        self._size = len(data) if isinstance(data, Sized) and _has_length(data) else None
        self._head: list[Any] | None = None
        self._failure: Exception | None = None

    @property
    def total(self) -> int | None:
        return self._size

    def _first(self) -> list[Any]:
        """The first samples, taken from the iterator once."""
        if self._head is None:
            self._head = []
            try:
                self._head += itertools.islice(self._iterator, _PROBES)
            except Exception as error:  # told when its place is reached
                self._failure = error
        return self._head

    def tasks(self, start: int, on_bad: OnBad) -> Iterator[Task]:
        number = 0
        try:
            for number, body in enumerate(itertools.chain(self._first(), self._rest())):
                if number >= start:
                    yield Task(number, None, body)
        except _Ended as ended:
            on_bad(Bad(number + 1 if self._head else 0, None, ended.error))

    def _rest(self) -> Iterator[Any]:
        """What follows the first samples; an iterator that raised has ended."""
        if self._failure is not None:
            raise _Ended(self._failure)
        while True:
            try:
                sample = next(self._iterator)
            except StopIteration:
                return
            except Exception as error:
                raise _Ended(error) from error
            yield sample

    def load(self, task: Task) -> Any:
        return task.body

    def identity(self) -> Iterator[str]:
        """Type, length if known, and its first samples."""
        yield f"{self._type}\0{self._size}"
        for number, sample in enumerate(self._first()):
            yield digest(sample, number)


class _Ended(Exception):  # noqa: N818 - a signal between two functions
    """The user's iterator raised `error`."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def digest(sample: Any, number: int) -> str:
    """A hash of a sample's content, as it would be stored; of its type where it can't be stored as it is."""
    hashed = hashlib.blake2b(digest_size=16)
    try:
        schema = infer([(number, sample)])
        record = Encoder(schema)(sample, number)
    except TypeError:
        return f"{type(sample).__module__}.{type(sample).__qualname__}"
    for field, value, shape in zip(schema.fields, record.values, record.shapes, strict=True):
        hashed.update(f"{field.name}\0{field.text}\0{shape}\0{len(value or b'')}\0".encode())
        hashed.update(value or b"")
    return hashed.hexdigest()


def is_samples(src: Any) -> bool:
    """Whether this is a Python object that holds or yields samples."""
    return not isinstance(src, (str, bytes, bytearray, Mapping)) and (
        hasattr(src, "__getitem__") or hasattr(src, "__iter__")
    )


def of(src: Any) -> Source:
    """The source for a Python object."""
    torch = sys.modules.get("torch.utils.data")
    iterable = torch is not None and isinstance(src, torch.IterableDataset)  # has a __getitem__ that only raises
    if not iterable and hasattr(src, "__getitem__") and _has_length(src):
        return Items(src)
    if hasattr(src, "__iter__") or hasattr(src, "__next__"):
        return Stream(src)
    raise TypeError(f"src: a {type(src).__name__} has __getitem__ but no length; give it a __len__")


def _has_length(data: Any) -> bool:
    try:
        return len(data) >= 0
    except (TypeError, NotImplementedError):
        return False
