"""Samples by number, exactly those that are asked for: by the library in this process, in workers by an engine's."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from redox import _native, client, wire
from redox.arena import Arena, Lease, allocated, columns_of, map_arena
from redox.attached import AttachedSession, File
from redox.columns import Columns, Reader
from redox.errors import CorruptError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redox.connection import Connection
    from redox.session import Session

__all__ = ["AttachedExact", "Exact", "exact_of", "stats_of"]

_MANY = 8192  # numbers from which on they go in a file instead of a message
_ANSWER_S = 30.0  # for what the engine answers at once


def exact_of(session: Session) -> Exact:
    """Return what reads samples by number for a session."""
    if isinstance(session, AttachedSession) and session.crew.working:
        return AttachedExact(session)
    return Exact(session)


class Exact:
    """Reads samples by number with the library in this process.

    Args:
        session: Of the data set.
    """

    def __init__(self, session: Session) -> None:
        self.session: Session = session
        self._wait_s = 0.0
        self._read = False

    def read(self, numbers: Sequence[int]) -> Columns:
        """Return samples by stored number; what is corrupt is replaced, if that is wanted."""
        begun = time.monotonic()
        self._read = True
        try:
            columns = self._columns(numbers)
        except CorruptError as error:
            if self.session.options.on_error != "skip" or len(numbers) == 1:
                raise
            columns = self._columns(self._stand_ins(numbers, error))
        self._wait_s += time.monotonic() - begun
        return self.session.chosen(columns)

    def _columns(self, numbers: Sequence[int]) -> Columns:
        reader = Reader(self.session.facts.fields, len(numbers))
        return reader.read(self.session.opened.handle, _native.numbers_of(numbers))

    def _stand_ins(self, numbers: Sequence[int], error: CorruptError) -> list[int]:
        """Return the numbers with each corrupt sample's place taken by the previous good one, else by the next."""
        good: list[int | None] = []
        for number in numbers:
            try:
                self._columns([number])
                good.append(number)
            except CorruptError as corrupt:
                self.session.note_skipped(number, corrupt)
                good.append(good[-1] if good else None)
        first = next((number for number in good if number is not None), None)
        if first is None:
            raise error
        return [first if number is None else number for number in good]

    def stats(self) -> dict[str, Any]:
        """Return what reading in this process cost; nothing if it has not read."""
        if not self._read:
            return {}
        stats = _native.read_stats(self.session.opened.handle)
        waits = {name: stats[name] + self._wait_s for name in ("wait_s", "wait_storage_s")}
        return {**stats, **waits, "skipped": self.session.skipped[1]}


class AttachedExact(Exact):
    """Has samples read by an engine.

    Args:
        session: Of the data set, in a worker.
    """

    session: AttachedSession

    def __init__(self, session: AttachedSession) -> None:
        super().__init__(session)
        self._connection: Connection | None = None
        self._arenas: dict[int, Arena] = {}

    def read(self, numbers: Sequence[int]) -> Columns:
        """Return samples by stored number; what is corrupt the engine replaces, if that is wanted."""
        connection = self._connection
        if connection is None or not connection.alive:
            connection = self._connect()
        session = self.session
        body, listed = wire.READ.pack(session.crew.worker, session.crew.workers), np.asarray(numbers, "<i8").tobytes()
        if len(numbers) < _MANY:
            body += listed
            reply, _ = connection.request(wire.READ_, body, expect=wire.BATCH_, timeout_s=session.patience)
        else:
            with File(listed) as file:
                reply, _ = connection.request(
                    wire.READ_, body, expect=wire.BATCH_, timeout_s=session.patience, file=file
                )
        return columns_of(connection, self._arena, session.fields, reply)[0]

    def _connect(self) -> Connection:
        from redox import crossing

        self._arenas.clear()
        self._connection = self.session.connect()
        crossing.by_reference(self, self.session.world.rank, self.session.patience)
        return self._connection

    def allocate(self, size: int) -> Lease | None:
        """Return memory for a tensor that is made of the samples; None if there is no room."""
        if self._connection is None or not self._connection.alive:
            return None
        return allocated(self._connection, self._arena, size, self.session.patience)

    def _arena(self, number: int) -> Arena:
        arena = self._arenas.get(number)
        if arena is None:
            assert self._connection is not None
            arena = self._arenas[number] = map_arena(self._connection, number, self.session.patience)
        return arena

    def stats(self) -> dict[str, Any]:
        """Return nothing: the engine counts, for all workers."""
        return {}


def stats_of(name: bytes, rank: int) -> dict[str, Any]:
    """Return what reading by number cost an engine; nothing if there is no such engine or it has not read."""
    connection = client.connection_to(name, rank)
    if connection is None:
        return {}
    body, _ = connection.request(wire.COUNTS, expect=wire.TEXT, timeout_s=_ANSWER_S)
    return dict(json.loads(body))
