"""A batch as the library gives it: columns of bytes, as NumPy views of its memory or of our own.

A batch is lent in a *slot* of the library's memory. The slot goes back when the last array over it is gone: every
array here is made over a `_Lent` object that holds the slot's lease, so a view of a view of a tensor keeps it, and the
slot is never overwritten under anybody. When the caller has kept all slots, the batch is put into fresh memory instead.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from redox import _native
from redox.errors import EngineError
from redox.heap import blank
from redox.schema import Field

__all__ = ["Column", "Columns", "Reader", "dtype_of", "fixed_dtype"]

_MANY_DIMENSIONS = 8


@dataclass(slots=True)
class Column:
    """One field of a batch of n samples.

    Attributes:
        field: Which one.
        data: Fixed-size fields: `[n, *shape]` of the field's dtype. Others: uint8, the samples' bytes one after
            the other.
        offsets: int64 `[n+1]`, where each sample's bytes begin; None for fixed-size fields.
        shape: uint64 `[n, dims]` for arrays of any shape, unused dimensions 2**64-1; else None.
        valid: uint8 `[n]`, 0 where the value is missing; None if the field can't be.
        strings: The samples' bytes, n byte strings, instead of in `data`; or None.
        index: The batch's, to say which sample is wrong.
    """

    field: Field
    data: np.ndarray
    offsets: np.ndarray | None
    shape: np.ndarray | None
    valid: np.ndarray | None
    strings: list[bytes] | None = None
    index: np.ndarray | None = None


@dataclass(slots=True)
class Columns:
    """One batch of n samples.

    Attributes:
        n: How many samples.
        epoch: Of which epoch.
        step: The batch's number for this rank in that epoch.
        index: int64 `[n]`, their stored numbers; padding under pad="mark" is -1 - i.
        columns: One for each field.
        skipped: Whether a sample stands in for a corrupt one.
        lease: In borrow mode, what keeps the memory ours; otherwise each array keeps it.
    """

    n: int
    epoch: int
    step: int
    index: np.ndarray
    columns: list[Column]
    skipped: bool
    lease: object = None

    def __post_init__(self) -> None:
        """Tell the columns whose samples they have."""
        for column in self.columns:
            column.index = self.index


def fixed_dtype(field: Field) -> np.dtype[Any] | None:
    """Return the NumPy dtype of a fixed-size field's items; None for fields of variable size. bfloat16 is uint16."""
    if field.kind == "array":
        return dtype_of(field) if field.shape is not None else None
    name = {"int": "int64", "float": "float64", "bool": "bool"}.get(field.kind)
    return None if name is None else np.dtype(name)


def dtype_of(field: Field) -> np.dtype[Any]:
    """Return the NumPy dtype of an array field; uint16 for bfloat16, which NumPy lacks."""
    return np.dtype("uint16" if field.dtype == "bfloat16" else field.dtype)


class _Lease:
    """A slot while somebody holds memory of it."""

    __slots__ = ("__weakref__",)


class _Lent:
    """Memory of a slot, for np.asarray. The array refers to this object, and so to the lease."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, owner: object, address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.owner = owner
        self.__array_interface__ = {"version": 3, "data": (address, False), "shape": shape, "typestr": dtype.str}


_BYTE, _I64, _U64 = np.dtype("uint8"), np.dtype("int64"), np.dtype("uint64")


def _view(owner: object, address: int | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    if not address or 0 in shape:
        return np.empty(shape, dtype)
    return np.asarray(_Lent(owner, address, shape, dtype))


class _Offer:
    """Memory for one batch that is not lent.

    Args:
        arrays: The memory; the first one is the index.
    """

    __slots__ = ("arrays", "kept", "strings")

    def __init__(self, arrays: list[np.ndarray]) -> None:
        self.arrays = arrays
        self.strings: dict[int, list[bytes]] = {}  # by field
        self.kept: list[np.ndarray] = []  # where those are
        arrays[0][0] = _native.ABSENT

    @property
    def filled(self) -> bool:
        """Whether there is a batch in it: the index is written when all is well."""
        return bool(self.arrays[0][0] != _native.ABSENT)


class Reader:
    """Takes batches out of one native loader. One thread at a time.

    Args:
        fields: Of every batch, in order.
        batch_size: The most samples that a batch has.
        owner: What keeps the loader's memory mapped; borrowed arrays refer to it, so that one used too late shows
            other data and not a crash.
        straight: Whether byte strings are put straight into Python's own. The loader then needs no slots.
    """

    def __init__(
        self, fields: tuple[Field, ...], batch_size: int, owner: object = None, *, straight: bool = False
    ) -> None:
        self._fields = fields
        self._size, self._straight = batch_size, straight
        self._offer: _Offer | None = None  # what the last call was to fill, unless that was delivered
        self._owner = owner
        self._array = (_native.Field * len(fields))()
        self._native = [self._array[i] for i in range(len(fields))]
        self._batch = _native.Batch(
            struct_size=ctypes.sizeof(_native.Batch), n_fields=len(fields), cap_samples=batch_size
        )
        self._batch.fields = self._array
        self._slot = ctypes.c_uint64()  # of a batch that is lent and not delivered yet
        self._dtypes = [fixed_dtype(field) for field in fields]
        self._bytes = [  # of a sample, where that is known
            0 if dtype is None else dtype.itemsize * math.prod(field.shape or ())
            for field, dtype in zip(fields, self._dtypes, strict=True)
        ]

    def lend(self, loader: int, timeout: float, *, borrow: bool = False) -> Columns | None:
        """Return the loader's next batch, or None at the end of the epoch.

        Args:
            loader: The native loader.
            timeout: Seconds to wait at most.
            borrow: The memory goes back with the `Columns`, whoever still looks at it; otherwise with the last array
                over it.
        """
        if self._offer is not None and self._offer.filled:  # Ctrl-C came between a batch and its delivery
            return self._delivered(self._offer)
        if self._straight:
            return self._own(loader, timeout)
        if not self._slot.value:  # else Ctrl-C came there
            self._reset(self._size)
            status = _native.acquire(loader, self._batch, timeout, self._slot)
            if status == _native.END_OF_EPOCH:
                return None
            if status == _native.ERANGE:
                return self._own(loader, timeout)
        lease = _Lease()
        columns = self._columns(self._owner if borrow else lease)
        columns.lease = lease if borrow else None
        _native.release_when_gone(lease, self._slot.value)
        self._slot.value = 0
        return columns

    def drop(self) -> None:
        """Give back a batch that was lent but, because of Ctrl-C, not delivered."""
        self._offer = None
        slot, self._slot.value = self._slot.value, 0
        if slot:
            _native.release(slot)

    def _own(self, loader: int, timeout: float) -> Columns | None:
        """The batch in memory of its own: the caller holds all slots, or there are none.

        Straight, each byte string is an object: the library is asked for their sizes, and then fills them.
        """
        places = (ctypes.c_void_p * len(self._fields))()
        if self._straight:
            self._reset(self._size)
        offer = None
        while True:
            if offer is None or not self._straight:
                self._offer = offer = _Offer(self._supply())
            status = _native.next_parts(loader, self._batch, places if self._straight else None, timeout)
            if status == _native.OK:
                return self._delivered(offer)
            if status == _native.END_OF_EPOCH:
                self._offer = None
                return None
            if self._straight:
                self._prepare(offer, places)

    def _prepare(self, offer: _Offer, places: Any) -> None:
        """Make byte strings of the sizes that the last call told."""
        offer.kept.clear()
        for i, (dtype, native) in enumerate(zip(self._dtypes, self._native, strict=True)):
            if dtype is None:
                ends = _view(offer, native.offsets, (self._batch.n_samples + 1,), _I64)
                offer.strings[i], at = blank(np.diff(ends).tolist())
                offer.kept.append(at)
                places[i] = at.ctypes.data

    def _delivered(self, offer: _Offer) -> Columns:
        columns = self._columns(offer.arrays, offer.strings if self._straight else None)
        self._offer = None
        return columns

    def read(self, dataset: int, numbers: Any) -> Columns:
        """Return samples by stored number (a C array), in memory of their own."""
        self._reset(len(numbers))
        for _ in range(4):
            owner = self._supply()
            if _native.read(dataset, numbers, self._batch) == _native.OK:
                return self._columns(owner)
        raise EngineError(f"redox_read asks for more memory each time it is called ({self._batch.cap_samples} samples)")

    def _reset(self, samples: int) -> None:
        self._batch.cap_samples = samples  # the library sets it to what a lent batch has
        for native in self._native:
            native.need = native.cap = 0
            native.shape_cap = native.ndim = 0

    def _supply(self) -> list[np.ndarray]:
        """Offer fresh memory for what the last call needed, and return it."""
        n = self._batch.cap_samples
        owner: list[np.ndarray] = []

        def fresh(count: int, dtype: np.dtype[Any]) -> int:
            owner.append(np.empty(max(1, count), dtype))
            return int(owner[-1].ctypes.data)

        self._batch.index = fresh(n, _I64)
        for field, dtype, native, each in zip(self._fields, self._dtypes, self._native, self._bytes, strict=True):
            size = max(native.need, n * each)
            native.data, native.cap = fresh(size, _BYTE), size
            native.offsets = fresh(n + 1, _U64) if dtype is None else None
            native.valid = fresh(n, _BYTE) if field.nullable else None
            native.shape = None
            if dtype is None and field.kind == "array":
                native.shape_cap = max(native.ndim, _MANY_DIMENSIONS)
                native.shape = fresh(n * native.shape_cap, _U64)
        return owner

    def _columns(self, owner: object, strings: dict[int, list[bytes]] | None = None) -> Columns:
        """The batch as it is now; `strings`: by field, what is not in its data."""
        batch = self._batch
        n = batch.n_samples
        columns = []
        for i, (field, dtype, native) in enumerate(zip(self._fields, self._dtypes, self._native, strict=True)):
            offsets = shape = valid = values = None
            if dtype is not None:
                data = _view(owner, native.data, (n, *(field.shape or ())), dtype)
            else:
                offsets = _view(owner, native.offsets, (n + 1,), _I64) if n else np.zeros(1, _I64)
                if strings is not None:
                    values = strings.get(i, [b""] * n)  # never asked for: all are empty
                data = _view(owner, native.data, (0 if values else int(offsets[n]),), _BYTE)
                if field.kind == "array":
                    shape = _view(owner, native.shape, (n, native.shape_cap), _U64)[:, : native.ndim]
            if field.nullable:
                valid = _view(owner, native.valid, (n,), _BYTE)
            columns.append(Column(field, data, offsets, shape, valid, values))
        index = _view(owner, batch.index, (n,), _I64)
        return Columns(n, batch.epoch, batch.step, index, columns, bool(batch.flags & _native.BATCH_SKIPPED))
