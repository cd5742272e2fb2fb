"""Batches of an engine as views of its memory, and who gives them back.

An engine's batches lie in slots of a memfd, which each process maps once. A *lease* stands for one batch that this
process holds. Every array over it refers to the lease, so that views of views, tensors' storages and `.numpy()` keep
it; when the last is gone, the slot goes back to the engine.
"""

from __future__ import annotations

import mmap
import os
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from redox import wire
from redox.columns import Column, Columns, fixed_dtype
from redox.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redox.connection import Connection
    from redox.schema import Field

__all__ = ["Arena", "Lease", "allocated", "columns_of", "map_arena"]

_NORESERVE = 0x4000  # MAP_NORESERVE: nearly all of the file are holes
T = TypeVar("T")
_BYTE, _I64, _U64 = np.dtype("uint8"), np.dtype("int64"), np.dtype("uint64")


class Arena:
    """A mapping of an engine's memory for batches."""

    def __init__(self, number: int, file: int, size: int) -> None:
        self.number = number
        self._map = mmap.mmap(file, size, flags=mmap.MAP_SHARED | _NORESERVE)
        self.address = int(np.frombuffer(self._map, np.uint8, 1).__array_interface__["data"][0])
        self.size = size
        self.leases: weakref.WeakValueDictionary[tuple[int, int], Lease] = weakref.WeakValueDictionary()

    @staticmethod
    def all() -> list[Arena]:
        """Return the arenas that are mapped here."""
        return _alive(_arenas)

    def lease_at(self, address: int) -> Lease | None:
        """Return the lease whose batch lies at an address, if this process has one."""
        for lease in _alive(self.leases):
            if lease.begin <= address < lease.end:
                return lease
        return None


def _alive(some: weakref.WeakValueDictionary[Any, T]) -> list[T]:
    """Return the values, while other threads and finalisers may add and remove some: iterating would raise then."""
    return [value for ref in some.valuerefs() if (value := ref()) is not None]


class Lease:
    """One batch that this process holds.

    Args:
        connection: Whose batch it is.
        arena: Where it lies.
        slot: Its slot.
        generation: Of the slot.
        extent: Addresses of its memory.
        patient: The engine is in no hurry to get it back.
    """

    __slots__ = ("__weakref__", "arena", "begin", "connection", "end", "generation", "slot", "tickets")

    def __init__(
        self, connection: Connection, arena: Arena, slot: int, generation: int, extent: tuple[int, int] = (0, 0),
        *, patient: bool = False,
    ) -> None:  # fmt: skip
        self.connection, self.arena, self.slot, self.generation = connection, arena, slot, generation
        self.begin, self.end = extent
        self.tickets = [0]  # given to other processes, less those taken from them
        # The finaliser keeps connection and mapping until the views are gone.
        end = weakref.finalize(self, _give_back, connection, arena, slot, generation, self.tickets, patient)
        end.atexit = False
        arena.leases[slot, generation] = self

    def view(self, address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """Return an array over memory of the batch, which keeps the lease."""
        return np.asarray(_Lent(self, address, shape, dtype))


def _give_back(
    connection: Connection, _arena: Arena, slot: int, generation: int, tickets: list[int], patient: bool
) -> None:
    connection.release(slot, generation, tickets[0], patient=patient)


class _Lent:
    """Memory for np.asarray; the array refers to this object, and so to the lease."""

    __slots__ = ("__array_interface__", "lease")

    def __init__(self, lease: Lease, address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.lease = lease
        self.__array_interface__ = {"version": 3, "data": (address, False), "shape": shape, "typestr": dtype.str}


def map_arena(connection: Connection, number: int, timeout_s: float) -> Arena:
    """Return a mapping of the engine's memory with this number; the one that this process has, if it has one."""
    known = _arenas.get((connection.instance, number))
    if known is not None:
        return known
    body, file = connection.request(wire.MEMORY_, wire.MEMORY.pack(number), expect=wire.MAPPED_, timeout_s=timeout_s)
    _, size = wire.MAPPED.unpack_from(body)
    assert file is not None
    return adopt(connection, number, file, size)


def adopt(connection: Connection, number: int, file: int, size: int) -> Arena:
    """Return the mapping of a file that the engine sent, and close the file."""
    try:
        arena = _arenas.get((connection.instance, number))
        if arena is None:
            arena = _arenas[connection.instance, number] = Arena(number, file, size)
            connection.arenas.append(arena)  # kept mapped as long as the connection: faults cost more than space
        return arena
    finally:
        os.close(file)


_arenas: weakref.WeakValueDictionary[tuple[int, int], Arena] = weakref.WeakValueDictionary()


def allocated(connection: Connection, arena_of: Any, size: int, timeout_s: float) -> Lease | None:
    """Return memory for a tensor that is made of an engine's samples; None if there is no room.

    Args:
        connection: That the samples came from.
        arena_of: From an arena's number to the arena.
        size: Bytes of the tensor.
        timeout_s: How long the engine may take.
    """
    try:
        body, _ = connection.request(wire.ALLOCATE, wire.SIZE.pack(size), expect=wire.ALLOCATED_, timeout_s=timeout_s)
    except EngineError:
        return None
    slot, generation, number, place = wire.ALLOCATED.unpack_from(body)
    arena: Arena = arena_of(number)
    return Lease(connection, arena, slot, generation, (arena.address + place, arena.address + place + size))


def columns_of(connection: Connection, arena_of: Any, fields: Sequence[Field], body: bytes) -> tuple[Columns, Lease]:
    """Return the batch that a BATCH message gives, as views, and its lease.

    Args:
        connection: That it came from.
        arena_of: From an arena's number to the arena.
        fields: Of the batch.
        body: Of the message.
    """
    slot, generation, n, flags, number, epoch, step, index = wire.BATCH.unpack_from(body)
    places = [wire.COLUMN.unpack_from(body, wire.BATCH.size + i * wire.COLUMN.size) for i in range(len(fields))]
    (what,) = wire.KEEPING.unpack_from(body, wire.BATCH.size + len(fields) * wire.COLUMN.size)
    arena: Arena = arena_of(number)
    # The index lies last in a slot.
    first = min([index] + [place[0] for place in places if place[0] != wire.NOWHERE])
    extent = arena.address + first, arena.address + index + 8 * n
    lease = Lease(connection, arena, slot, generation, extent, patient=what == wire.NO_HURRY)
    columns = [_column(lease, field, n, place) for field, place in zip(fields, places, strict=True)]
    numbers = _part(lease, index, (n,), _I64)
    batch = Columns(n, epoch, step, numbers, columns, bool(flags & 1))
    return (_copied(batch) if what == wire.COPY else batch), lease


def _column(lease: Lease, field: Field, n: int, place: tuple[int, ...]) -> Column:
    data, need, offsets, shape, valid, dims = place
    dtype = fixed_dtype(field)
    present = _part(lease, valid, (n,), _BYTE) if field.nullable else None
    if dtype is not None:
        return Column(field, _part(lease, data, (n, *(field.shape or ())), dtype), None, None, present)
    shapes = None
    if field.kind == "array":
        shapes = _part(lease, shape, (n, dims), _U64)
    ends = _part(lease, offsets, (n + 1,), _I64)
    return Column(field, _part(lease, data, (need,), _BYTE), ends, shapes, present)


def _part(lease: Lease, place: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    if place == wire.NOWHERE or 0 in shape:
        return np.zeros(shape, dtype)
    return lease.view(lease.arena.address + place, shape, dtype)


def _copied(batch: Columns) -> Columns:
    """Return a batch in memory of this process; the slot goes back with the views of it."""

    def own(array: np.ndarray | None) -> Any:
        return None if array is None else array.copy()

    batch.index = own(batch.index)
    batch.columns = [
        Column(c.field, own(c.data), own(c.offsets), own(c.shape), own(c.valid), index=batch.index)
        for c in batch.columns
    ]
    return batch
