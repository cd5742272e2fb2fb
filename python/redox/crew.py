"""Who draws batches together, and from which engine process.

Workers of one iteration of a DataLoader share its batches; ranks of one node share an engine. Two jobs, two users, two
data sets of a program, two copies of a test suite must never meet.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from multiprocessing import parent_process
from typing import TYPE_CHECKING

from redox import client, wire

if TYPE_CHECKING:
    from redox.world import World

__all__ = ["Crew", "end_with", "engine_for"]


class Crew:
    """Which workers draw together: those of one iteration of one DataLoader, or a trainer by itself.

    Attributes:
        trainer: Pid of the process that trains.
        worker: Number of this worker.
        workers: How many there are.
        base: What the workers of one iteration have in common.
        birth: How manyth of its trainer's processes this worker is.
    """

    def __init__(
        self, trainer: int, worker: int = 0, workers: int = 1, base: int = wire.NO_BASE, birth: int = 0
    ) -> None:
        self.trainer, self.worker, self.workers, self.base, self.birth = trainer, worker, workers, base, birth

    @classmethod
    def here(cls, copies: int = 0) -> Crew:
        """Return that of this process.

        Args:
            copies: How often what draws was pickled, up to this copy: workers that are not forked get one each.
        """
        data = sys.modules.get("torch.utils.data")  # a process without it is no worker of it
        info = data.get_worker_info() if data is not None else None
        if info is None:
            return cls(os.getpid())
        parent = parent_process()  # not os.getppid(): under forkserver that is the server
        assert parent is not None
        assert parent.pid is not None
        return cls(parent.pid, info.id, info.num_workers, (info.seed - info.id) & wire.NOWHERE, _forks + copies)

    @property
    def working(self) -> bool:
        """Whether this is a worker."""
        return self.base != wire.NO_BASE


_following = 0  # the process that ends with its trainer


def end_with(trainer: int) -> None:
    """Let this worker process end when its trainer does.

    PyTorch's workers look for their parent every 5 s; those of a fork server never notice, as their parent is the
    server, which waits for them.
    """
    global _following  # noqa: PLW0603 - once in a process
    if _following == os.getpid():
        return
    _following = os.getpid()
    try:
        file = os.pidfd_open(trainer)
    except OSError:  # it has gone, or may not be watched
        return
    threading.Thread(target=_wait_for, args=(file,), name="redox-follow", daemon=True).start()


def _wait_for(file: int) -> None:
    poll = select.poll()  # not select: it knows only small numbers of files
    poll.register(file, select.POLLIN)
    poll.poll()
    os.kill(os.getpid(), signal.SIGTERM)


_forks = 0  # of this process, and of those that it was forked from


def _count_fork() -> None:
    global _forks  # noqa: PLW0603 - the child inherits it
    _forks += 1


os.register_at_fork(before=_count_fork)


def engine_for(world: World, crew: Crew, name: str, ordinal: int) -> bytes:
    """Return the name of the engine for a data set of this program.

    Args:
        world: Which rank this is.
        crew: Who draws together.
        name: Of the data set's content and of what it is for.
        ordinal: How manyth data set of this name the program has made.
    """
    return client.engine_name(*_job(world, crew), world.node, name, ordinal)


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
