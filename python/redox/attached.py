"""A data set in a process that draws from an engine: a DataLoader's worker, or one of several ranks of a node.

`AttachedSession` and `AttachedPass` have the face of `redox.session`'s, and nothing of the library. Which epoch a pass
is the engine says: workers are copies of the trainer's process and its objects, and forget.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import struct
from collections import deque
from multiprocessing import parent_process
from typing import TYPE_CHECKING, Any

from redox import client, wire
from redox.arena import Arena, adopt, columns_of, map_arena
from redox.client import Answered, Connection
from redox.session import Progress, Session

if TYPE_CHECKING:
    from redox.columns import Columns
    from redox.facts import Facts
    from redox.options import Options
    from redox.world import World

__all__ = ["AttachedPass", "AttachedSession", "Crew"]

_PATIENCE_S = 5.0  # beyond the engine's own patience
_ORIGINS = 1024  # samples asked for in one message


class Crew:
    """Which workers draw together: those of one iteration of one DataLoader, or a trainer by itself.

    Attributes:
        trainer: Pid of the process that trains.
        worker: Number of this worker.
        workers: How many there are.
        base: What the workers of one iteration have in common.
    """

    def __init__(self, trainer: int, worker: int = 0, workers: int = 1, base: int = wire.NO_BASE) -> None:
        self.trainer, self.worker, self.workers, self.base = trainer, worker, workers, base

    @classmethod
    def here(cls) -> Crew:
        """Return that of this process."""
        import sys

        data = sys.modules.get("torch.utils.data")  # a process without it is no worker of it
        info = data.get_worker_info() if data is not None else None
        if info is None:
            return cls(os.getpid())
        parent = parent_process()  # not os.getppid(): under forkserver that is the server
        assert parent is not None and parent.pid is not None
        return cls(parent.pid, info.id, info.num_workers, (info.seed - info.id) & wire.NOWHERE)

    @property
    def working(self) -> bool:
        """Whether this is a worker."""
        return self.base != wire.NO_BASE


def engine_for(world: World, crew: Crew, fingerprint: str, ordinal: int) -> bytes:
    """Return the name of the engine for a data set of this program.

    Args:
        world: Which rank this is.
        crew: Who draws together.
        fingerprint: Of the data set.
        ordinal: How manyth data set with this fingerprint the program has made.
    """
    return client.engine_name(*_job(world, crew), fingerprint, ordinal)


# What tells one job of a launcher from others: of torchrun, of a SLURM step, of Open MPI.
_JOBS = (
    ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "GROUP_RANK"),
    ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT", "SLURM_NODEID"),
    ("OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"),
)


def _job(world: World, crew: Crew) -> tuple[object, ...]:
    """Return what the ranks of a job that are on this node have in common, and nobody else."""
    if world.ranks_here == 1:
        return crew.trainer, _started(crew.trainer)
    for names in _JOBS:
        values = tuple(os.environ.get(name) for name in names)
        if values[0] is not None:
            return values
    # Ranks that one process has started, as torch.multiprocessing.spawn does.
    parent = _parent_of(crew.trainer)
    return parent, _started(parent)


def _stat(pid: int) -> list[bytes]:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()


def _started(pid: int) -> int:
    """Return when a process began: with its pid it is that process and no other."""
    return int(_stat(pid)[19])


def _parent_of(pid: int) -> int:
    return int(_stat(pid)[1])


class AttachedSession(Session):
    """What this process holds for one data set object when an engine process does the work.

    Args:
        facts: Of the data set.
        options: Of loading.
        world: Which rank this is.
        crew: Who draws together.
        name: Of the engine.
    """

    def __init__(self, facts: Facts, options: Options, world: World, crew: Crew, name: bytes) -> None:
        super().__init__(facts, options, world)
        self.crew, self.name = crew, name
        self._questions: Connection | None = None

    # ---- connections -------------------------------------------------------------------------------------------------

    def connect(self) -> Connection:
        """Return a new connection to the engine, which is started if need be."""
        options = self.options.native(self.world)
        for name in ("rank", "prefetch"):
            options.pop(name)
        options["memory_limit"] = self.options.memory_limit  # of the node, and so is the engine
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
            },
        }
        patience = self.options.timeout + _PATIENCE_S
        if chosen is None:
            return client.connect(self.name, greeting, patience, self.facts.path)
        with _File(chosen) as file:
            return client.connect(self.name, greeting, patience, self.facts.path, lambda: file)

    def ask(self, kind: int, body: bytes = b"", *, expect: int) -> bytes:
        """Return the engine's answer to a question."""
        if self._questions is None or not self._questions.alive:
            self._questions = self.connect()
        return bytes(self._questions.request(kind, body, expect=expect, timeout_s=self.patience)[0])

    @property
    def patience(self) -> float:
        """Seconds that the engine may take for an answer: it gives up first, and says why."""
        return self.options.timeout + _PATIENCE_S

    # ---- what sessions do --------------------------------------------------------------------------------------------

    def new_pass(self, *, borrow: bool = False) -> AttachedPass:
        """Return a new pass; it begins with its first batch."""
        return AttachedPass(self, next(_count_of(self.name, self.crew.base)), borrow=borrow)

    def origin(self, numbers: list[int]) -> tuple[list[int], list[str]]:
        """Return the source numbers and keys of stored numbers."""
        import json

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


class _File:
    """Bytes as a file without a name."""

    def __init__(self, data: bytes) -> None:
        self._file = os.memfd_create("redox-subset", os.MFD_CLOEXEC)
        with os.fdopen(os.dup(self._file), "wb") as stream:
            stream.write(data)

    def __enter__(self) -> int:
        return self._file

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


# How many passes this process began, by engine and base: persistent workers begin many with one base.
_counts: dict[tuple[int, bytes, int], itertools.count[int]] = {}


def _count_of(name: bytes, base: int) -> itertools.count[int]:
    return _counts.setdefault((os.getpid(), name, base), itertools.count())


# Connections of the passes that ended last. With its workers' connections a pass is over for the engine, and what the
# trainer has not taken off torch's queues by then is lost. So they outlive iterators that are dropped at once.
_ended: deque[Connection] = deque(maxlen=8)


class AttachedPass:
    """One iteration over (the rest of) an epoch, on a connection of its own.

    Args:
        session: Of the data set.
        nth: How many passes this worker had begun before.
        borrow: Lend each batch only until the next one.
    """

    def __init__(self, session: AttachedSession, nth: int, *, borrow: bool = False) -> None:
        self._session, self._nth, self._borrow = session, nth, borrow
        self._connection: Connection | None = None
        self._arenas: dict[int, Arena] = {}
        self._number = session.crew.worker  # of the next batch
        self.progress: Progress | None = None

    def next(self) -> Columns | None:
        """Return the next batch of this worker; None at the end of the epoch, and from then on."""
        progress = self.progress or self._begin()
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
            progress.done = True
            _ended.append(connection)
            self._connection = None
            return None
        self._number += self._session.crew.workers
        progress.batches += 1
        columns, lease = columns_of(connection, self._arena, self._session.fields, body)
        columns.lease = lease if self._borrow else None
        return columns

    def _begin(self) -> Progress:
        session, crew = self._session, self._session.crew
        connection = self._connection = session.connect()
        body, file = connection.request(
            wire.BEGIN_,
            wire.BEGIN.pack(crew.base, self._nth, crew.worker, crew.workers, *session.cursor.word()),
            expect=wire.BEGAN_,
            timeout_s=session.patience,
        )
        epoch, start, _, arena, size = wire.BEGAN.unpack_from(body)
        assert file is not None
        self._arenas[arena] = adopt(connection, arena, file, size)
        progress = self.progress = Progress(session.share, epoch, start)
        progress.done = False  # the engine knows
        session.latest = progress
        session.skipped[0] = 0
        if crew.working:
            from redox import crossing

            crossing.by_reference(session.world.rank)
        return progress

    def _arena(self, number: int) -> Arena:
        arena = self._arenas.get(number)
        if arena is None:
            assert self._connection is not None
            arena = self._arenas[number] = map_arena(self._connection, number, self._session.patience)
        return arena
