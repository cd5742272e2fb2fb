"""Tensors over an engine's batches cross from a worker to the trainer as references.

PyTorch moves every tensor of a batch into fresh shared memory, which costs more than reading it. A tensor whose memory
is a batch of the engine is shared already: its pickle is where it lies. Who unpickles it *claims* the batch through a
connection of its own, and gets a view of its own mapping; a claim that comes too late is an error, never other data.
"""

from __future__ import annotations

import weakref
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import torch
from torch.multiprocessing.reductions import reduce_tensor

from redox import wire
from redox.arena import Arena, Lease, map_arena
from redox.client import connection_to, seen
from redox.errors import EngineError

__all__ = ["by_reference", "rebuilt"]

_BYTE = np.dtype("uint8")


# ---- the worker's side -----------------------------------------------------------------------------------------------

_claimant = (0, 0.0)  # who claims what this process sends


def by_reference(rank: int, patience_s: float) -> None:
    """Let this process pickle tensors over an engine's memory as references.

    Args:
        rank: Of the trainer that will get them.
        patience_s: How long the engine may take to answer it.
    """
    global _claimant  # noqa: PLW0603 - a worker has one trainer
    _claimant = rank, patience_s
    ForkingPickler.register(torch.Tensor, _reduce)


def _reduce(tensor: torch.Tensor) -> Any:
    lease = _lease_of(tensor)
    if lease is None:
        return reduce_tensor(tensor)  # type: ignore[no-untyped-call]
    lease.tickets[0] += 1
    connection = lease.connection
    return rebuilt, (
        (connection.name, connection.instance, *_claimant),
        (lease.arena.number, lease.slot, lease.generation),
        tensor.data_ptr() - lease.arena.address,
        tuple(tensor.shape),
        tensor.dtype,
    )


def _lease_of(tensor: torch.Tensor) -> Lease | None:
    """Return the batch that a tensor is a view of, if it can cross as a reference."""
    if tensor.layout is not torch.strided or tensor.device.type != "cpu" or tensor.requires_grad:
        return None
    if tensor.numel() == 0 or not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
        return None
    address = tensor.data_ptr()
    for arena in Arena.all():
        if arena.address <= address < arena.address + arena.size:
            return arena.lease_at(address)
    return None


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
    name, instance, rank, patience_s = engine
    number, slot, generation = where
    key = (instance, slot, generation)
    lease = _claims.get(key)
    copy = 0
    if lease is None:
        connection = connection_to(name, rank)
        if connection is None or connection.instance != instance:
            raise EngineError("a batch came too late: the engine process that it belongs to has ended")
        body, _ = connection.request(
            wire.CLAIM_, wire.CLAIM.pack(slot, generation), expect=wire.CLAIMED_, timeout_s=patience_s
        )
        copy, _, seen[name], _ = wire.CLAIMED.unpack_from(body)
        lease = Lease(connection, map_arena(connection, number, patience_s), slot, generation)
        if not copy:
            _claims[key] = lease
    lease.tickets[0] -= 1
    size = dtype.itemsize
    for dimension in shape:
        size *= dimension
    view = lease.view(lease.arena.address + offset, (size,), _BYTE)
    tensor = torch.from_numpy(view).view(dtype).view(shape)
    return tensor.clone() if copy else tensor
