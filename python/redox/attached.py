"""A data set in a process that draws from an engine: a DataLoader's worker, or one of several ranks of a node.

`AttachedSession` and `AttachedPass` have the face of `redox.session`'s, and nothing of the library. Which epoch a pass
is the engine says: workers are copies of the trainer's process and its objects, and forget.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import struct
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

from redox import client, wire
from redox.arena import Arena, Lease, adopt, allocated, columns_of, map_arena
from redox.connection import Answered, Connection
from redox.crew import end_with
from redox.errors import Error, PeerError, StallError, StateError
from redox.logs import follow
from redox.part import Part
from redox.passes import Progress
from redox.session import Session

if TYPE_CHECKING:
    from redox.columns import Columns
    from redox.crew import Crew
    from redox.facts import Facts
    from redox.meeting import Meeting
    from redox.options import Options
    from redox.world import World

__all__ = ["AttachedPass", "AttachedSession", "File", "status_of", "tell"]

_PATIENCE_S = 5.0  # beyond the engine's own patience
_ANSWER_S = 30.0  # for what the engine answers at once
_ORIGINS = 1024  # samples asked for in one message
_STATUSES = ((StallError, -11), (PeerError, -10), (ValueError, -1), (Exception, -15))  # redox_status of failures


class AttachedSession(Session):
    """What this process holds for one data set object when an engine process does the work.

    Args:
        facts: Of the data set.
        options: Of loading.
        world: Which rank this is.
        crew: Who draws together.
        name: Of the engine.
        meeting: How the engine finds those of other nodes; None where they exchange nothing.
    """

    def __init__(
        self, facts: Facts, options: Options, world: World, crew: Crew, name: bytes, meeting: Meeting | None = None
    ) -> None:
        super().__init__(facts, options, world, meeting)
        self.crew, self.name = crew, name
        self._questions: Connection | None = None
        self._newest: weakref.ref[AttachedPass] | None = None
        self._part: Part | None = None  # that the next pass goes on with
        self.passing: weakref.ref[Connection] | None = None  # of the pass that began last

    # ---- connections -------------------------------------------------------------------------------------------------

    def connect(self) -> Connection:
        """Return a new connection to the engine, which is started if need be."""
        options = self.options.native(self.world)
        for name in ("rank", "prefetch"):
            options.pop(name)
        subset = self.options.subset
        chosen = subset.numbers.tobytes() if subset is not None and subset.numbers is not None else None
        greeting = {
            "trainer": self.crew.trainer,
            "rank": self.world.rank,
            "timeout": self.options.timeout,
            "options": {
                "path": self.facts.path,
                "ranks": self.world.ranks_here,
                "subset": hashlib.sha256(chosen).hexdigest() if chosen is not None else "",
                "loader": options,
                "mesh": self.meeting.options() if self.meeting is not None else {},
            },
        }
        patience = self.options.timeout + _PATIENCE_S
        if chosen is None:
            return client.connect(self.name, greeting, patience, self.facts.path)
        with File(chosen) as file:
            return client.connect(self.name, greeting, patience, self.facts.path, lambda: file)

    def introduce(self, connection: Connection) -> None:
        """Before a pass: let the engine meet those of the other nodes, if it is this client's turn to bring them."""
        if self.meeting is None:
            return
        try:
            # Another client may be at it: it takes as long for the cards, and the engine for the connections.
            card, _ = connection.request(wire.WHO_MEETS, expect=wire.YOUR_CARD, timeout_s=3 * self.patience)
        except Answered as answer:
            if answer.kind != wire.DONE:
                raise
            return

        asked = False

        def meet(cards: bytes, wait_s: float) -> None:
            nonlocal asked
            asked = True  # with this message the turn is given back, whatever comes of it
            body = wire.WAIT.pack(int(wait_s * 1000)) + cards
            connection.request(wire.MEET, body, expect=wire.DONE, timeout_s=wait_s + _PATIENCE_S)

        try:
            self.meeting.hold(card, meet, self.options.timeout)
        except Exception as error:
            if not asked:
                self._could_not(connection, error)
            raise

    def _could_not(self, connection: Connection, error: Exception) -> None:
        """Let the engine know why it will not get the cards, for the clients that wait for them."""
        status = next((status for kind, status in _STATUSES if isinstance(error, kind)), _STATUSES[-1][1])
        body = wire.WAIT.pack(wire.COULD_NOT) + json.dumps({"status": status, "message": str(error)}).encode()
        with contextlib.suppress(Error):  # it has said itself what is wrong, or is gone
            connection.request(wire.MEET, body, expect=wire.DONE, timeout_s=_ANSWER_S)

    def ask(self, kind: int, body: bytes = b"", *, expect: int) -> bytes:
        """Return the engine's answer to a question."""
        if self._questions is None or not self._questions.alive:
            self._questions = self.connect()
        return self._questions.request(kind, body, expect=expect, timeout_s=self.patience)[0]

    @property
    def patience(self) -> float:
        """Seconds that the engine may take for an answer: it gives up first, and says why."""
        return self.options.timeout + _PATIENCE_S

    # ---- what sessions do --------------------------------------------------------------------------------------------

    def new_pass(self, *, borrow: bool = False) -> AttachedPass:  # type: ignore[override] # the same face
        """Return a new pass; it begins with its first batch."""
        part, self._part = self._part, None
        one = AttachedPass(self, next(_count_of(self.name, self.crew.base)), borrow=borrow, part=part)
        self._newest = weakref.ref(one)
        return one

    def part_state(self) -> dict[str, Any]:
        """Return the state of this worker alone; see `redox.part`."""
        one = self._newest() if self._newest is not None else None
        if one is None:
            raise StateError("a DataLoader worker has a state while it iterates")
        epoch, part = one.part()
        state = {**self.template(), "epoch": epoch, "position": part.origin}
        return {**state, "worker": part.told(self.crew)}

    def load_part(self, epoch: int, part: Part) -> None:
        """Let this worker's next pass go on as a state of it says."""
        self._part = part
        self.cursor.load(epoch, part.start(self.share, self.crew))
        self.cursor.set_epoch(epoch)  # named: an iteration that had ended is not to become the next one
        self.cursor.serial = max(self.cursor.serial, self._status()["serial"] + 1)

    def template(self) -> dict[str, Any]:
        """Return a state with everything in it that does not change."""
        if self._unchanging is None:
            self.learn(self._status()["state"])
        assert self._unchanging is not None
        return self._unchanging

    def expect(self, state: dict[str, Any]) -> None:
        """Raise StateError unless a state is one of this order."""
        self.ask(wire.CHECK, json.dumps(state).encode(), expect=wire.DONE)

    def stats(self) -> dict[str, Any]:
        """Return the counters of this rank, for the latest epoch and in all."""
        return dict(self._status()["stats"])

    def count_skipped(self) -> int:
        """Count one more sample that is left out, and return how many all workers left out in this epoch."""
        connection = self.passing() if self.passing is not None else None
        body = wire.SIZE.pack(1)
        if connection is not None and connection.alive:
            body, _ = connection.request(wire.SKIPPED, body, expect=wire.TEXT, timeout_s=self.patience)
        else:
            body = self.ask(wire.SKIPPED, body, expect=wire.TEXT)
        return int(json.loads(body)["skipped"])

    def _status(self) -> dict[str, Any]:
        return dict(json.loads(self.ask(wire.STATUS, expect=wire.TEXT)))

    def origin(self, numbers: list[int]) -> tuple[list[int], list[str]]:
        """Return the source numbers and keys of stored numbers."""
        sources: list[int] = []
        keys: list[str] = []
        for first in range(0, len(numbers), _ORIGINS):
            part = numbers[first : first + _ORIGINS]
            found = json.loads(self.ask(wire.ORIGIN, struct.pack(f"<{len(part)}q", *part), expect=wire.TEXT))
            sources += found["sources"]
            keys += found["keys"]
        return sources, keys

    def sources(self, numbers: list[int]) -> list[int]:
        """Return the source numbers of stored numbers."""
        return self.origin(numbers)[0]


class File:
    """Bytes as a file without a name."""

    def __init__(self, data: bytes) -> None:
        self._file = os.memfd_create("redox-subset", os.MFD_CLOEXEC)
        with os.fdopen(os.dup(self._file), "wb") as stream:
            stream.write(data)

    def __enter__(self) -> int:
        return self._file

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


def status_of(name: bytes, rank: int) -> dict[str, Any] | None:
    """Return what an engine says about this process's workers as a rank; None if there is no such engine.

    `passes` began; the latest with `epoch` at position `start`; the next would be `next_epoch` at `next_position`, as
    word number `serial` has it; `state` has what all states have in common; `stats` the counters.
    """
    connection = client.connection_to(name, rank)
    if connection is None:
        return None
    body, _ = connection.request(wire.STATUS, expect=wire.TEXT, timeout_s=_ANSWER_S)
    follow(connection, urgent=True)
    return dict(json.loads(body))


def tell(session: AttachedSession, *, start: bool) -> int:
    """Let the engine of workers that live on know what the user says about epochs; return how many passes it has seen.

    Args:
        session: Of the trainer.
        start: Whether to start an engine where there is none: if one died, the workers will look for another.
    """
    passes = 0
    connection = client.connection_to(session.name, session.world.rank)
    if connection is None and start:
        connection = session.connect()
    if connection is not None:
        body, _ = connection.request(wire.STATUS, expect=wire.TEXT, timeout_s=_ANSWER_S)
        # A worker that was restored by itself may have said more than the trainer knows of.
        status = json.loads(body)
        session.cursor.serial, passes = max(session.cursor.serial, status["serial"] + 1), status["passes"]
        word = wire.WORD.pack(*session.cursor.word(), -1)
        connection.request(wire.SET, word, expect=wire.DONE, timeout_s=_ANSWER_S)
    client.seen.pop(session.name, None)
    return passes


# How many passes this process began, by engine and base: persistent workers begin many with one base.
_counts: dict[tuple[int, bytes, int], itertools.count[int]] = {}


def _count_of(name: bytes, base: int) -> itertools.count[int]:
    return _counts.setdefault((os.getpid(), name, base), itertools.count())


class _Part:
    """A worker's part in a pass. When all workers have given up theirs, what was not received is taken back."""

    def __init__(self, connection: Connection) -> None:
        weakref.finalize(self, connection.say, wire.LEAVE).atexit = False


# Of the passes that this worker finished last: their last batches are still in torch's queues.
_finished: deque[_Part] = deque(maxlen=8)


class AttachedPass:
    """One iteration over (the rest of) an epoch, on a connection of its own.

    Args:
        session: Of the data set.
        nth: How many passes this worker had begun before.
        borrow: Lend each batch only until the next one.
        part: Of an earlier pass, which this one goes on with.
    """

    def __init__(self, session: AttachedSession, nth: int, *, borrow: bool = False, part: Part | None = None) -> None:
        self._session, self._nth, self._borrow = session, nth, borrow
        self._resumed, self._before = part, 0
        self._connection: Connection | None = None
        self._part: _Part | None = None
        self._arenas: dict[int, Arena] = {}
        self._number = session.crew.worker  # of the next batch
        self.progress: Progress | None = None

    def next(self) -> Columns | None:
        """Return the next batch of this worker; None at the end of the epoch, and from then on."""
        progress = self.progress or self._begin()
        while self._resumed is not None and self._before + self._number < self._resumed.next and not progress.done:
            self._take(progress)  # had been given before
        return self._take(progress)

    def part(self) -> tuple[int, Part]:
        """Return the epoch, and what this worker is about to do.

        Raises:
            StateError: It is in the middle of a batch.
        """
        progress = self.progress or self._begin()
        if progress.pending():
            raise StateError("a DataLoader worker's state can be told between batches only, not in the middle of one")
        origin = progress.start if self._resumed is None else self._resumed.origin
        return progress.epoch, Part(origin, self._before + self._number)

    def _take(self, progress: Progress) -> Columns | None:
        if progress.done:
            return None
        connection = self._connection
        assert connection is not None
        try:
            body, _ = connection.request(
                wire.NEXT_, wire.NEXT.pack(self._number), expect=wire.BATCH_, timeout_s=self._session.patience
            )
        except Answered as answer:
            if answer.kind != wire.ENDED:
                raise
            follow(connection)
            progress.done = True
            connection.quicken()
            if self._session.crew.working and self._part is not None:
                _finished.append(self._part)
            self._connection = self._part = None
            return None
        except Exception:
            follow(connection, urgent=True)
            raise
        follow(connection)
        self._number += self._session.crew.workers
        progress.batches += 1
        columns, lease = columns_of(connection, self._arena, self._session.fields, body)
        columns.lease = lease if self._borrow else None
        return columns

    def _begin(self) -> Progress:
        session, crew = self._session, self._session.crew
        connection = self._connection = session.connect()
        session.introduce(connection)
        seen = client.seen.get(session.name, -1)
        body, file = connection.request(
            wire.BEGIN_,
            wire.BEGIN.pack(crew.base, self._nth, crew.worker, crew.workers, crew.birth, *session.cursor.word(), seen),
            expect=wire.BEGAN_,
            timeout_s=session.patience,
        )
        self._part = _Part(connection)
        epoch, start, _, arena, size = wire.BEGAN.unpack_from(body)
        assert file is not None
        self._arenas[arena] = adopt(connection, arena, file, size)
        client.seen[session.name] = epoch
        progress = self.progress = Progress(session.share, epoch, start)
        progress.done = False  # the engine knows
        if self._resumed is not None:
            self._before = self._resumed.before(session.share, start)
            self._number = (crew.worker - self._before) % crew.workers
        session.latest = progress
        session.passing = weakref.ref(connection)
        if crew.working:
            end_with(crew.trainer)
            from redox import crossing

            crossing.by_reference(self, session.world.rank, session.patience)
        return progress

    def allocate(self, size: int) -> Lease | None:
        """Return memory for a tensor that is made of this pass's samples; None if there is no room."""
        connection = self._connection
        if connection is None or not connection.alive:
            return None
        return allocated(connection, self._arena, size, self._session.patience)

    def _arena(self, number: int) -> Arena:
        arena = self._arenas.get(number)
        if arena is None:
            assert self._connection is not None
            arena = self._arenas[number] = map_arena(self._connection, number, self._session.patience)
        return arena
