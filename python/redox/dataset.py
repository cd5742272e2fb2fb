"""`redox.open`: a data set for looking at, and for reading in batches without PyTorch."""

from __future__ import annotations

import operator
import os
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from redox import _native
from redox.columns import Columns, Reader
from redox.errors import ClosedError
from redox.facts import Facts
from redox.options import Options, whole
from redox.passes import Pass
from redox.present import Presenter
from redox.session import Opened, Session
from redox.subset import Subset
from redox.values import NumpyMaker
from redox.world import MOST_RANKS, World

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from redox.info import Info

__all__ = ["Batch", "Dataset", "open"]


def open(path: str | os.PathLike[str]) -> Dataset:  # noqa: A001 - read as redox.open
    """Open a data set.

        >>> with redox.open("train.redox") as d:                            # doctest: +SKIP
        ...     print(len(d), d[17])

    Raises:
        NotADatasetError: There is none at `path`.
        FormatError: It is of a newer version, or damaged.
    """
    return Dataset(path)


class Batch(dict[str, Any]):
    """Fields by name: arrays `[B, ...]`, or lists of B values.

    Attributes:
        index: int64 `[B]`, the samples' stored numbers.
        epoch: The epoch that it is of.
        step: Its number in that epoch.
    """

    def __init__(self, fields: dict[str, Any], index: np.ndarray, epoch: int, step: int) -> None:
        super().__init__(fields)
        self.index, self.epoch, self.step = index, epoch, step


class Dataset:
    """A packed data set. Cheap to open, closed by `close()` or `with`; pickled as its path.

    `d[i]` and `d[[…]]` read by stored number, one ranged read for neighbours: for looking, not for training.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._facts = Facts.read(path)
        self._opened: Opened | None = Opened(self._facts.path)
        self._closed = False

    def __reduce__(self) -> tuple[Any, ...]:
        return Dataset, (self._facts.path,)

    def __enter__(self) -> Dataset:
        self._handle()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the data set. Closing it again does nothing."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def _handle(self) -> int:
        if self._opened is None:
            raise ClosedError(f"{self._facts.path} was closed")
        return self._opened.handle

    @property
    def path(self) -> str:
        """Where it is, absolute."""
        return self._facts.path

    @property
    def info(self) -> Info:
        """What is in it, and what it will take to load it."""
        from redox.info import Info

        return Info(_native.dataset_info(self._handle()), self._facts.path)

    @property
    def fields(self) -> dict[str, str]:
        """The kinds of its fields, by name."""
        return self._facts.kinds

    @property
    def layout(self) -> str:
        """How a sample looks: "tuple", "dict" or "scalar"."""
        return self._facts.layout

    @property
    def classes(self) -> list[str]:
        """Names of the classes, by label; empty if it has none."""
        return list(self._facts.classes)

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Labels of the classes, by name."""
        return {name: label for label, name in enumerate(self._facts.classes)}

    @property
    def fingerprint(self) -> str:
        """Identifies its content."""
        return self._facts.fingerprint

    def __len__(self) -> int:
        return self._facts.samples

    def __repr__(self) -> str:
        state = "" if self._opened is not None else ", closed"
        return f"redox.Dataset({self._facts.path!r}, {len(self)} samples{state})"

    def __iter__(self) -> Iterator[Any]:
        return (self[number] for number in range(len(self)))

    # -- single samples ------------------------------------------------------------------------------------------------

    @overload
    def __getitem__(self, number: int) -> Any: ...
    @overload
    def __getitem__(self, number: slice | Sequence[int]) -> list[Any]: ...
    def __getitem__(self, number: Any) -> Any:
        """Return a sample, or the list of several, by stored number; images as encoded bytes.

        Raises:
            IndexError: There is no such number.
        """
        return self.get(number, decode=False)

    def get(self, number: Any, *, decode: bool = True) -> Any:
        """Return a sample, or the list of several, by stored number.

        Args:
            number: A stored number (negative: from the end), a slice, or a sequence of numbers.
            decode: Whether encoded images become pictures.
        """
        if isinstance(number, slice):
            return self._get(list(range(*number.indices(len(self)))), decode)
        if hasattr(number, "__index__") and not getattr(number, "ndim", 0):  # arrays and tensors have it, too
            return self._get([number], decode)[0]
        if isinstance(number, (str, bytes)) or not hasattr(number, "__iter__"):
            raise _no_number(number)
        return self._get(list(number), decode)

    def _get(self, numbers: list[Any], decode: bool) -> list[Any]:
        numbers = [self._number(number) for number in numbers]
        if not numbers:
            return []
        session = Session(self._facts, Options(len(numbers)), World())
        columns = Reader(self._facts.fields, len(numbers)).read(self._handle(), _native.numbers_of(numbers))
        return list(Presenter(session, NumpyMaker(), decode_images=decode, with_index=None).finished(columns))

    def _number(self, number: Any) -> int:
        try:
            wanted = operator.index(number)
        except TypeError:
            raise _no_number(number) from None
        if not -len(self) <= wanted < len(self):
            raise IndexError(f"sample {wanted}: {self._facts.path} has samples 0 to {len(self) - 1}")
        return int(wanted % len(self))

    def source(self, number: int) -> int:
        """Return the number that a sample had in its source, before it was shuffled."""
        return _native.sources(self._handle(), [self._number(number)])[0]

    def key(self, number: int) -> str:
        """Return the key of a sample: its path, its `__key__`, or its number in the source."""
        return _native.origin(self._handle(), [self._number(number)])[1][0]

    def find(self, key: str) -> int:
        """Return the stored number of the sample with this key.

        Raises:
            KeyError: There is none.
        """
        try:
            return _native.find_key(self._handle(), key)
        except ValueError as error:
            if type(error) is not ValueError:
                raise
            raise KeyError(key) from None

    # -- batches -------------------------------------------------------------------------------------------------------

    def batches(
        self,
        batch_size: int,
        *,
        epoch: int = 0,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        fields: Sequence[str] | None = None,
        window: int | None = None,
        partitions: int = 64,
        memory_limit: int | str = "auto",
        io: str = "auto",
        timeout: float = 120.0,
        on_error: str = "raise",
    ) -> Iterator[Batch]:
        """Iterate over one epoch in batches of NumPy arrays.

        Fixed-size fields and numbers come as arrays `[B, ...]` over memory that is the caller's for as long as an array
        over it lives; bytes and (encoded) images as lists of bytes, text and JSON as lists.

        Args:
            batch_size: Samples of a batch; the last one may have less.
            epoch: Which epoch's order.
            seed: The order is a function of it and of the epoch.
            shuffle: False: stored order.
            drop_last: Leave out an incomplete last batch.
            fields: Names of the fields to read; None: all.
            window: Chunks open for mixing; None: a function of the data set.
            partitions: Slices of an epoch's chunks.
            memory_limit: Bytes, or like "1gb"; "auto": what the window needs.
            io: "auto", "direct" or "buffered" reading.
            timeout: Seconds to wait for a batch before `StallError`.
            on_error: "skip": put another sample of the batch in the place of a corrupt one.
        """
        self._handle()
        options = Options(
            batch_size, shuffle=shuffle, shuffle_seed=whole("seed", seed, 0, (1 << 64) - 1), drop_last=drop_last,
            fields=fields, window=window, partitions=partitions, memory_limit=memory_limit, io=io, timeout=timeout,
            on_error=on_error,
        )  # fmt: skip
        session = Session(self._facts, options, World())
        session.set_epoch(whole("epoch", epoch, 0, (1 << 63) - 1))
        return self._while_open(batches_of(session))

    def _while_open(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        self._handle()
        for batch in batches:
            yield batch
            self._handle()

    def batch_indices(
        self,
        step: int,
        *,
        epoch: int = 0,
        seed: int = 0,
        batch_size: int,
        world_size: int = 1,
        nodes: int | Sequence[int] = 1,
        window: int | None = None,
        partitions: int = 64,
        exchange: str | float = "local",
        keep: str = "epoch",
        subset: Any = None,
        shuffle: bool = True,
        drop_last: bool = False,
        pad: bool | str | None = None,
    ) -> np.ndarray:
        """Return which samples are in a global batch, from the plan alone; no sample is read.

        Args:
            step: The number of the global batch in its epoch, from 0.
            epoch: Which epoch.
            seed: `shuffle_seed` of the run.
            batch_size: Of one rank.
            world_size: Number of ranks.
            nodes: Number of machines, or how many ranks each has.
            window: As in the run, like all that follow; see `redox.RedoxDataset`.

        Returns:
            Stored numbers, int64 `[world_size, batch_size]`; the smallest int64 where a rank gets no sample, -1 - i for
            padding under pad="mark".
        """
        handle = self._handle()
        options = Options(
            batch_size, shuffle=shuffle, shuffle_seed=whole("seed", seed, 0, (1 << 64) - 1), drop_last=drop_last,
            window=window, partitions=partitions, exchange=exchange, keep=keep, pad=pad,
            subset=Subset.parse(subset, len(self)),
        )  # fmt: skip
        native = options.native(World.of(0, whole("world_size", world_size, 1, MOST_RANKS), nodes))
        wanted = {name: native[name] for name in native if name in _PLAN}
        wanted["epoch"] = whole("epoch", epoch, 0, (1 << 63) - 1)
        held = None
        if options.subset is not None and options.subset.numbers is not None:
            held = wanted["subset_handle"] = _native.subset_new(
                handle, _native.numbers_of(options.subset.numbers.tolist())
            )
        try:
            step = whole("step", step, 0, (1 << 63) - 1)
            found = _native.plan_indices(handle, wanted, step, world_size * options.batch_size)
        finally:
            if held is not None:
                _native.subset_close(held)
        return np.asarray(found, np.int64).reshape(world_size, options.batch_size)


_PLAN = frozenset(
    [
        "batch_size",
        "shuffle",
        "shuffle_seed",
        "drop_last",
        "pad",
        "subset",
        "window",
        "partitions",
        "rank",
        "world_size",
        "nodes",
        "exchange",
        "keep",
    ]
)


def batches_of(session: Session) -> Iterator[Batch]:
    presenter = Presenter(session, NumpyMaker(), decode_images=False, with_index=None, batched=True)
    one = Pass(session)
    while True:
        columns: Columns | None = one.next()
        if columns is None:
            return
        fields = dict(zip(presenter.names, presenter.columns(columns), strict=True))
        batch = Batch(fields, columns.index, columns.epoch, columns.step)
        del columns, fields  # the caller alone decides how long the memory is kept
        yield batch
        del batch


def _no_number(value: Any) -> TypeError:
    return TypeError(f"{value!r} is no stored number: expected an integer, a slice, or a sequence of integers")
