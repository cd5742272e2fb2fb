"""What lies in an engine's batches crosses from a worker to the trainer as references.

PyTorch moves every tensor of a batch into fresh shared memory, which costs more than reading it. A tensor whose memory
is a batch of the engine is shared already: its pickle is where it lies. Who unpickles it *claims* the batch through a
connection of its own, and gets a view of its own mapping; a claim that comes too late is an error, never other data.

Strings have to be objects. Where nobody in the worker looks at them, they are made by who unpickles them (`Strings`).
"""

from __future__ import annotations

import weakref
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.multiprocessing.reductions import reduce_tensor
from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map

from redox import wire
from redox.arena import Arena, Lease, map_arena
from redox.client import connection_to, seen
from redox.errors import EngineError
from redox.logs import follow
from redox.values import some_missing, strings, undecodable

if TYPE_CHECKING:
    from redox.attached import AttachedPass
    from redox.columns import Column
    from redox.exact import AttachedExact

__all__ = ["Strings", "by_reference", "rebuilt"]

_BYTE, _I64 = np.dtype("uint8"), np.dtype("int64")


# ---- the worker's side -----------------------------------------------------------------------------------------------

_claimant = (0, 0.0)  # who claims what this process sends
_pass: weakref.ref[AttachedPass | AttachedExact] | None = None  # that began last
_SMALL = 64 << 10  # bytes: below it a copy through the pipe is cheaper than shared memory of either kind


def by_reference(one: AttachedPass | AttachedExact, rank: int, patience_s: float) -> None:
    """Let this process pickle tensors over an engine's memory as references, and collate samples into that memory.

    Args:
        one: What gets batches from now on, whose engine gives the memory.
        rank: Of the trainer that will get them.
        patience_s: How long the engine may take to answer it.
    """
    global _claimant, _pass
    _claimant, _pass = (rank, patience_s), weakref.ref(one)
    default_collate_fn_map[torch.Tensor] = _stacked
    ForkingPickler.register(torch.Tensor, _reduce)


def _reduce(tensor: torch.Tensor) -> Any:
    if not _simple(tensor):
        return reduce_tensor(tensor)  # type: ignore[no-untyped-call]
    lease = _lease_at(tensor.data_ptr())
    if lease is None:
        if tensor.nbytes > _SMALL or tensor.is_shared():  # type: ignore[no-untyped-call]
            return reduce_tensor(tensor)  # type: ignore[no-untyped-call]
        return _copied, (tensor.view(-1).view(torch.uint8).numpy().tobytes(), tuple(tensor.shape), tensor.dtype)
    place = tensor.data_ptr() - lease.arena.address
    return rebuilt, (*_ticket(lease), place, tuple(tensor.shape), tensor.dtype)


def _ticket(lease: Lease) -> tuple[Any, Any]:
    """Return what `_claimed` needs, which must be called once for it."""
    lease.tickets[0] += 1
    connection = lease.connection
    return (connection.name, connection.instance, *_claimant), (lease.arena.number, lease.slot, lease.generation)


def _simple(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is nothing but its bytes, type and shape."""
    if tensor.layout is not torch.strided or tensor.device.type != "cpu" or tensor.requires_grad:
        return False
    if tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or tensor.__dict__:
        return False
    return tensor.numel() > 0 and tensor.is_contiguous()


def _stacked(batch: list[torch.Tensor], *, collate_fn_map: Any = None) -> torch.Tensor:
    """Stack samples as PyTorch's collation does, into memory that the trainer has mapped already."""
    first = batch[0]
    size = first.nbytes * len(batch)
    one = _pass() if _pass is not None else None
    if size > _SMALL and one is not None and _simple(first) and all(_alike(x, first) for x in batch):
        lease = one.allocate(size)
        if lease is not None:
            view = torch.from_numpy(lease.view(lease.begin, (size,), _BYTE))
            return torch.stack(batch, 0, out=view.view(first.dtype).view(len(batch), *first.shape))
    stacked: torch.Tensor = collate_tensor_fn(batch, collate_fn_map=collate_fn_map)
    return stacked


def _alike(x: torch.Tensor, first: torch.Tensor) -> bool:
    return type(x) is torch.Tensor and x.dtype == first.dtype and x.shape == first.shape and not x.requires_grad


def _lease_at(address: int) -> Lease | None:
    """Return the batch that lies at an address."""
    for arena in Arena.all():
        if arena.address <= address < arena.address + arena.size:
            return arena.lease_at(address)
    return None


def _copied(data: bytes, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor that crossed as its bytes."""
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(dtype).view(shape)


class Strings:
    """The strings of a column, on their way to another process: there they are a list or a tuple.

    Args:
        column: Of bytes, str or encoded images, none missing.
        container: `list` or `tuple`.
    """

    def __init__(self, column: Column, container: type) -> None:
        self._column, self._container = column, container

    @staticmethod
    def fit(column: Column) -> bool:
        """Return whether the values of a column can cross like that. JSON would only be parsed in the trainer."""
        return column.offsets is not None and column.field.kind not in ("array", "json") and not some_missing(column)

    def __reduce__(self) -> Any:
        column = self._column
        assert column.offsets is not None
        text = column.field.name if column.field.kind == "str" else None
        data, ends = (array.__array_interface__["data"][0] for array in (column.data, column.offsets))
        lease = _lease_at(data)
        if lease is None or not lease.begin <= ends < lease.end:  # it had to be copied, or there is nothing in it
            return self._container, (_decoded(strings(column.data, column.offsets), text),)
        base = lease.arena.address
        places = data - base, column.data.size, ends - base, column.offsets.size
        return remade, (*_ticket(lease), places, text, self._container)


def _decoded(values: list[Any], text: str | None) -> list[Any]:
    if text is None:
        return values
    try:
        return [value.decode() for value in values]
    except ValueError as error:
        raise undecodable(values, bytes.decode, text, None) from error


# ---- the trainer's side ----------------------------------------------------------------------------------------------

_claims: weakref.WeakValueDictionary[tuple[int, int, int], Lease] = weakref.WeakValueDictionary()


def rebuilt(
    engine: tuple[bytes, int, int, float],
    where: tuple[int, int, int],
    offset: int,
    shape: tuple[int, ...],
    dtype: torch.dtype,
) -> torch.Tensor:
    """Return the tensor that a reference means.

    Args:
        engine: Its name and instance, the rank, and how long the engine may take to answer.
        where: Arena, slot and generation.
        offset: Of the tensor in the arena.
        shape: Of the tensor.
        dtype: Of the tensor.

    Raises:
        EngineError: The iteration that the batch belongs to has ended, or the engine has.
    """
    lease, copy = _claimed(engine, where)
    size = dtype.itemsize
    for dimension in shape:
        size *= dimension
    view = lease.view(lease.arena.address + offset, (size,), _BYTE)
    tensor = torch.from_numpy(view).view(dtype).view(shape)
    return tensor.clone() if copy else tensor


def remade(
    engine: tuple[bytes, int, int, float],
    where: tuple[int, int, int],
    places: tuple[int, int, int, int],
    text: str | None,
    container: type,
) -> Any:
    """Return the list or tuple of strings that a reference means; see `rebuilt`.

    Args:
        engine: As `rebuilt` has it.
        where: Arena, slot and generation.
        places: Of the strings and how many bytes they have, of their offsets and how many these are; in the arena.
        text: Name of their field if they are str, else None.
        container: `list` or `tuple`.
    """
    lease, _ = _claimed(engine, where)
    data, size, ends, count = places
    base = lease.arena.address
    values = strings(lease.view(base + data, (size,), _BYTE), lease.view(base + ends, (count,), _I64))
    made = _decoded(values, text)
    return made if container is list else container(made)


def _claimed(engine: tuple[bytes, int, int, float], where: tuple[int, int, int]) -> tuple[Lease, bool]:
    """Return the batch that a ticket is for, and whether it has to be copied and given back."""
    name, instance, rank, patience_s = engine
    number, slot, generation = where
    key = (instance, slot, generation)
    lease = _claims.get(key)
    what = wire.NO_HURRY
    if lease is None:
        connection = connection_to(name, rank)
        if connection is None or connection.instance != instance:
            raise EngineError("a batch came too late: the engine process that it belongs to has ended")
        body, _ = connection.request(
            wire.CLAIM_, wire.CLAIM.pack(slot, generation), expect=wire.CLAIMED_, timeout_s=patience_s
        )
        follow(connection)
        what, _, epoch, _ = wire.CLAIMED.unpack_from(body)
        if epoch != wire.NO_EPOCH:
            seen[name] = epoch
        arena = map_arena(connection, number, patience_s)
        lease = Lease(connection, arena, slot, generation, patient=what == wire.NO_HURRY)
        if what != wire.COPY:
            _claims[key] = lease
    lease.tickets[0] -= 1
    return lease, what == wire.COPY
