"""Samples that know their batch, and their collation without a copy.

PyTorch's default collation copies every sample into a new tensor. Samples of Redox come out of a batch that is one
tensor already, so when a whole batch of them arrives at the collation unchanged, the batch itself is the answer.

A sample is a plain tuple or dict in all but its class; the batch remembers which samples it handed out. The short cut
is taken only if the collated list is exactly those, nobody else holds one of them (the batch shares their memory), and
no tensor was given other memory, another shape or other flags. Anything else goes PyTorch's way.

Where PyTorch's loader itself asks for the samples of a batch, and collates them by default, nobody sees them: it gets a
`Place` for each, and of the collation the whole batch.
"""

from __future__ import annotations

import sys
import weakref
from operator import attrgetter, is_, itemgetter
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import default_collate
from torch.utils.data._utils.collate import collate, collate_str_fn, default_collate_fn_map

from redox.crossing import Strings
from redox.values import some_missing

if TYPE_CHECKING:
    from redox.columns import Columns
    from redox.present import Presenter

__all__ = ["Place", "Record", "Sample", "SampleDict", "Samples", "collated", "open_samples"]


class Sample(tuple):  # type: ignore[type-arg]
    """One sample of a data set of tuples."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (tuple(self),)


class SampleDict(dict):  # type: ignore[type-arg]
    """One sample of a data set of dicts."""

    __slots__ = ("__weakref__",)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


# Of live batches, by the id of their first sample. The record keeps its samples, so that no id is used twice.
_records: weakref.WeakValueDictionary[int, Record] = weakref.WeakValueDictionary()


class Record:
    """The samples that one batch handed out, and its columns. Whoever iterates keeps it until the next batch.

    Args:
        samples: In order, all of one class.
        names: Keys of dict samples, None for tuples.
        rows: For each field the values that are in the samples.
        whole: For each field its column `[n, ...]`, or None where collation is PyTorch's business.
    """

    __slots__ = ("__weakref__", "_given", "_marks", "_names", "_rows", "_samples", "_whole")

    def __init__(
        self, samples: list[Any], names: tuple[str, ...] | None, rows: list[list[Any]], whole: list[torch.Tensor | None]
    ) -> None:
        self._samples = samples
        self._names = names
        self._rows = rows
        self._whole = whole
        self._given = False  # a second collation gets memory of its own
        self._marks = [None if column is None else _version(column) for column in whole]
        _records[id(samples[0])] = self

    def collated(self, batch: list[Any], collate_fn_map: Any) -> Any:
        """Return what the default collation would for `batch`; raises `_ChangedError` if they are not it."""
        if self._given or len(batch) != len(self._samples) or not all(map(is_, batch, self._samples)):
            raise _ChangedError
        held = map(_refcount, batch)
        if next(held) > _HELD + 1 or max(held, default=0) > _HELD:  # PyTorch's collate holds the first one, too
            raise _ChangedError
        if self._names is not None and set(map(len, batch)) != {len(self._names)}:
            raise _ChangedError
        columns = [self._column(i, batch, collate_fn_map) for i in range(len(self._whole))]
        self._given = True
        return columns if self._names is None else dict(zip(self._names, columns, strict=True))

    def _column(self, field: int, batch: list[Any], collate_fn_map: Any) -> Any:
        column, rows = self._whole[field], self._rows[field]
        value = itemgetter(field if self._names is None else self._names[field])
        try:
            if column is None:  # a tuple or a list, as PyTorch transposes tuples and dicts
                values = map(value, batch)
                return collate(tuple(values) if self._names is None else list(values), collate_fn_map=collate_fn_map)
            if self._names is not None and not all(map(is_, map(value, batch), rows)):
                raise _ChangedError
        except KeyError:
            raise _ChangedError from None
        if isinstance(rows[0], torch.Tensor):
            mark = self._marks[field]
            if mark is None or mark != _version(column) or not _untouched(column, rows):
                raise _ChangedError
        return column


class Samples(list):  # type: ignore[type-arg]
    """Samples in one list with their record, for those who hand out a whole batch at once."""

    __slots__ = ("record",)

    def __init__(self, samples: list[Any], record: Record | None) -> None:
        super().__init__(samples)
        self.record = record


def open_samples(presenter: Presenter, columns: Columns) -> tuple[list[Any], Record | None]:
    """Return a batch's samples as they were packed, and what knows that they are one batch.

    Args:
        presenter: That has nothing to decode or transform.
        columns: The batch, of at least one sample.
    """
    rows: list[list[Any]] = []
    whole: list[torch.Tensor | None] = []
    for column in columns.columns:
        if column.offsets is not None or some_missing(column):
            rows.append(presenter.maker.rows(column))
            whole.append(None)
            continue
        tensor = presenter.maker.array(column.data, column.field)
        rows.append(list(tensor.unbind(0)) if column.field.kind == "array" else column.data.tolist())
        whole.append(tensor)
    if presenter.with_index:
        index = presenter.index(columns)
        rows.append(index)
        whole.append(torch.tensor(index) if isinstance(index[0], int) else None)
    if presenter.layout == "dict":
        names = presenter.names
        samples: list[Any] = _dicts(names, rows)
        return samples, Record(samples, names, rows, whole)
    if presenter.layout == "scalar" and len(rows) == 1:
        return rows[0], None
    samples = list(map(Sample, zip(*rows, strict=True)))
    return samples, Record(samples, None, rows, whole)


def _dicts(names: tuple[str, ...], rows: list[list[Any]]) -> list[Any]:
    """Return the rows as dicts. Few fields are worth code of their own: `zip` for each sample costs twice as much."""
    if len(names) == 1:
        (a,) = names
        return [SampleDict({a: x}) for x in rows[0]]
    if len(names) == 2:
        a, b = names
        return [SampleDict({a: x, b: y}) for x, y in zip(*rows, strict=True)]
    if len(names) == 3:
        a, b, c = names
        return [SampleDict({a: x, b: y, c: z}) for x, y, z in zip(*rows, strict=True)]
    return [SampleDict(zip(names, row, strict=True)) for row in zip(*rows, strict=True)]


def collated(presenter: Presenter, columns: Columns, *, unseen: bool = False) -> Any:
    """Return what the default collation makes of a batch's samples, without making the samples.

    Args:
        presenter: That has nothing to decode or transform.
        columns: The batch.
        unseen: Whether nobody looks at the result before it has been pickled.
    """
    unseen = unseen and all(default_collate_fn_map.get(kind) is collate_str_fn for kind in (str, bytes))
    maker = presenter.maker
    lone = presenter.layout == "scalar" and not presenter.with_index
    transposed: type = list if lone or presenter.layout == "dict" else tuple
    together: list[Any] = []
    for column in columns.columns:
        if column.offsets is None and not some_missing(column):
            together.append(maker.array(column.data, column.field))
        elif unseen and Strings.fit(column):
            together.append(Strings(column, transposed))
        else:
            together.append(_collate(transposed(maker.rows(column))))
    if presenter.with_index:
        together.append(_collate(transposed(presenter.index(columns))))
    if presenter.layout == "dict":
        return dict(zip(presenter.names, together, strict=True))
    return together[0] if lone else together


def _collate(values: Any) -> Any:
    return collate(values, collate_fn_map=default_collate_fn_map)


class Place:
    """Stands for each sample of a batch between PyTorch's fetcher and its default collation.

    Args:
        presenter: That has nothing to decode or transform.
        columns: The batch.
    """

    def __init__(self, presenter: Presenter, columns: Columns) -> None:
        self._presenter, self._columns = presenter, columns

    @staticmethod
    def serves(presenter: Presenter, fetcher: Any) -> bool:
        """Return whether samples that this fetcher asks for are seen by nobody but the default collation."""
        return presenter.plain and fetcher.auto_collation and fetcher.collate_fn is default_collate

    def collated(self, batch: list[Any], collate_fn_map: Any) -> Any:
        """Return what the default collation would for `batch`, which begins with a place of this."""
        n = self._columns.n
        if len(batch) == n and all(place is self for place in batch):
            return collated(self._presenter, self._columns, unseen=self._presenter.working)
        samples, _ = open_samples(self._presenter, self._columns)  # the fetcher went on to another batch
        return collate([*samples[: len(batch)], *batch[n:]], collate_fn_map=collate_fn_map)


def _collate_places(batch: list[Place], *, collate_fn_map: Any = None) -> Any:
    return batch[0].collated(batch, collate_fn_map)


class _ChangedError(Exception):
    """The collated samples are not exactly those of one batch as it was handed out."""


_refcount = sys.getrefcount


def _baseline() -> int:
    """Return the reference count of a sample that only its batch's record and the collated list hold."""
    given = [Sample((i,)) for i in range(2)]
    collated = list(given)
    return max(map(_refcount, collated))


_HELD = _baseline()


def _version(column: torch.Tensor) -> int | None:
    """Return the counter of in-place changes that a column shares with its rows; None if it has none."""
    return None if column.is_inference() else column._version


_shape, _requires_grad = attrgetter("shape"), attrgetter("requires_grad")


def _untouched(column: torch.Tensor, rows: list[torch.Tensor]) -> bool:
    """Return whether the rows are still the column's memory, with its shape, held by nobody else."""
    start, step = column.data_ptr(), column.stride(0) * column.element_size()
    if step == 0 or max(map(_refcount, rows)) > _HELD:
        return False
    if list(map(torch.Tensor.data_ptr, rows)) != list(range(start, start + step * len(rows), step)):
        return False
    return set(map(_shape, rows)) == {column.shape[1:]} and not any(map(_requires_grad, rows))


def _collate_samples(batch: list[Any], *, collate_fn_map: Any = None) -> Any:
    record = batch.record if isinstance(batch, Samples) else _records.get(id(batch[0]))
    if record is not None:
        try:
            return record.collated(batch, collate_fn_map)
        except _ChangedError:
            pass
    # As if the samples were the plain tuples or dicts that they look like.
    plain = dict if isinstance(batch[0], dict) else tuple
    return collate(
        [plain(sample) if isinstance(sample, (Sample, SampleDict)) else sample for sample in batch],
        collate_fn_map=collate_fn_map,
    )


default_collate_fn_map[Place] = _collate_places
default_collate_fn_map[Sample] = _collate_samples
default_collate_fn_map[SampleDict] = _collate_samples
