"""Columns of bytes to what users see: NumPy arrays, tensors, Python values.

Two views of the same batch: *whole* columns (one array or list a field) and *rows* (for each field the list of its n
values). Fixed-size arrays are views of the batch's memory in both; what is not an array is made anew.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from redox.columns import Column, dtype_of
from redox.errors import CorruptError
from redox.heap import keep_heap

if TYPE_CHECKING:
    from collections.abc import Callable

    from redox.schema import Field

__all__ = ["Maker", "NumpyMaker", "TorchMaker", "some_missing", "strings", "undecodable"]

_SMALL = 4096  # bytes a value, on average: below it one copy of all is cheaper than one call for each
_UNUSED = np.uint64(2**64 - 1)  # a dimension that an array does not have


class Maker:
    """Turns columns into values. Subclasses say what an array is."""

    def array(self, data: np.ndarray, field: Field) -> Any:
        """Return an array over `data`, without a copy."""
        raise NotImplementedError

    def unbind(self, data: np.ndarray, field: Field) -> list[Any]:
        """Return the n items of a fixed-size array column, without a copy."""
        raise NotImplementedError

    def whole(self, column: Column) -> Any:
        """Return a column: an array `[n, ...]` if the field has a fixed size and no value is missing, else a list."""
        if column.offsets is not None or some_missing(column):
            return self.rows(column)
        return self.array(column.data, column.field)

    def rows(self, column: Column) -> list[Any]:
        """Return a column's n values: arrays, Python numbers, str, bytes, parsed JSON; None where one is missing."""
        field = column.field
        if column.offsets is None:
            values = column.data.tolist() if field.kind != "array" else self.unbind(column.data, field)
        elif field.kind == "array":
            values = self._ragged(column)
        else:
            values = strings(column.data, column.offsets) if column.strings is None else list(column.strings)
            if field.kind == "str":
                try:
                    values = [value.decode() for value in values]
                except ValueError as error:
                    raise undecodable(values, bytes.decode, field.name, column.index) from error
        if some_missing(column):
            assert column.valid is not None
            present = column.valid.tolist()
            values = [value if here else None for value, here in zip(values, present, strict=True)]
        if field.kind == "json":
            try:
                values = [None if value is None else json.loads(value) for value in values]
            except ValueError as error:
                raise undecodable(values, json.loads, field.name, column.index) from error
        return values

    def _ragged(self, column: Column) -> list[Any]:
        assert column.offsets is not None
        dtype = dtype_of(column.field)
        ends = column.offsets.tolist()
        shapes = _shapes(column, dtype.itemsize)
        present = [True] * len(shapes) if column.valid is None else column.valid.tolist()
        return [
            self.array(column.data[start:end].view(dtype).reshape(shape), column.field) if here else None
            for start, end, shape, here in zip(ends[:-1], ends[1:], shapes, present, strict=True)
        ]


class NumpyMaker(Maker):
    """Values as NumPy has them; bfloat16 arrays as the uint16 of their bits."""

    def array(self, data: np.ndarray, field: Field) -> np.ndarray:
        """Return `data` itself."""
        return data

    def unbind(self, data: np.ndarray, field: Field) -> list[Any]:
        """Return views of the n items."""
        return list(data)


class TorchMaker(Maker):
    """Values as PyTorch has them."""

    def __init__(self) -> None:
        import torch

        self._torch = torch

    def array(self, data: np.ndarray, field: Field) -> Any:
        """Return a tensor over `data`; it keeps `data`, and so its memory, alive."""
        tensor = self._torch.from_numpy(data)
        return tensor.view(self._torch.bfloat16) if field.dtype == "bfloat16" else tensor

    def unbind(self, data: np.ndarray, field: Field) -> list[Any]:
        """Return tensors over the n items."""
        return list(self.array(data, field).unbind(0))


def undecodable(values: list[Any], decode: Callable[[bytes], Any], name: str, index: Any) -> CorruptError:
    """Return the error for text that is not what its kind says. The library refuses to write that, but has not always.

    Which value it was is asked only here, so that good ones cost nothing.

    Args:
        values: As stored; one of them can't be decoded.
        decode: What fails.
        name: The field's.
        index: Stored numbers of the samples, or None where they are not known.
    """
    for place, value in enumerate(values):
        try:
            if value is not None:
                decode(value)
        except ValueError as error:
            if index is None:
                return CorruptError(f"field {name!r} of sample {place} of a batch can't be decoded: {error}")
            number = int(index[place])
            number = number if number >= 0 else -1 - number  # padding
            return CorruptError(f"field {name!r} of sample {number} can't be decoded: {error}", sample=number)
    raise AssertionError("all can be decoded")


def some_missing(column: Column) -> bool:
    """Return whether a value of a column is missing."""
    return column.valid is not None and not column.valid.all()


def strings(data: np.ndarray, offsets: np.ndarray) -> list[bytes]:
    """Return a column's byte strings, each a copy."""
    ends = offsets.tolist()
    if ends[-1] < _SMALL * len(ends):
        everything = data.tobytes()
        return [everything[start:end] for start, end in pairwise(ends)]
    keep_heap(ends[-1])
    view = memoryview(data.data)
    return [view[start:end].tobytes() for start, end in pairwise(ends)]


def _shapes(column: Column, itemsize: int) -> list[tuple[int, ...]]:
    """Return the shapes of arrays of any shape, n tuples."""
    assert column.shape is not None
    unused = column.shape == _UNUSED
    if not unused.any():
        return [tuple(shape) for shape in column.shape.tolist()]
    dims = (~unused).sum(axis=1).tolist()
    return [tuple(shape[:used]) for shape, used in zip(column.shape.tolist(), dims, strict=True)]
