"""Which rank this process is, of how many, on how many nodes.

Found, in this order: in the arguments; in an initialised process group of PyTorch; in the environment of torchrun, of
a SLURM step, of Open MPI; else one rank on one node. Nothing here starts a process group or talks to anybody.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

__all__ = ["World"]


@dataclass(frozen=True)
class World:
    """One process's place among those that share an epoch.

    Attributes:
        rank: This process, 0 … size-1.
        size: Ranks in all.
        nodes: Machines that they are on, each with size/nodes consecutive ranks.
    """

    rank: int = 0
    size: int = 1
    nodes: int = 1

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"world_size={self.size}: expected at least 1")
        if not 0 <= self.rank < self.size:
            raise ValueError(f"rank={self.rank}: expected 0 to world_size-1 = {self.size - 1}")
        if not 1 <= self.nodes <= self.size:
            raise ValueError(f"nodes={self.nodes}: expected 1 to world_size = {self.size}")

    @property
    def ranks_here(self) -> int:
        """Ranks on this node (on the fullest one, where they differ)."""
        return -(-self.size // self.nodes)

    @classmethod
    def resolve(cls, rank: int | None = None, size: int | None = None, nodes: int | None = None) -> World:
        """Return the world that this process is in.

        Args:
            rank: The argument `rank` of the data set.
            size: Its argument `world_size`.
            nodes: Its argument `nodes`.

        Raises:
            ValueError: Arguments or environment contradict themselves, or WORLD_SIZE > 1 comes without a rank.
        """
        if size is None and rank is None:
            here = _process_group() or _environment() or cls()
            return here if nodes is None else cls(here.rank, here.size, nodes)
        if size is None:
            raise ValueError(f"rank={rank} was given without world_size: expected both or neither")
        if rank is None:
            if size > 1:
                raise ValueError(f"world_size={size} was given without rank: expected both or neither")
            rank = 0
        if nodes is not None:
            return cls(rank, size, nodes)
        found = _process_group() or _environment()
        return cls(rank, size, found.nodes if found is not None and found.size == size else 1)


def _process_group() -> World | None:
    """Return the world of an initialised process group, without importing torch for it."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    size = distributed.get_world_size()
    return World(distributed.get_rank(), size, _nodes(size, "LOCAL_WORLD_SIZE"))


_LAUNCHERS = (  # rank, world size, ranks on this node
    ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
)


def _environment() -> World | None:
    for rank_name, size_name, local_name in _LAUNCHERS:
        size = _number(size_name)
        if size is None:
            continue
        rank = _number(rank_name)
        if rank is None:
            if size > 1:
                raise ValueError(
                    f"the environment has {size_name}={size} but no {rank_name}: start all ranks with torchrun, "
                    "or pass rank= and world_size="
                )
            rank = 0
        return World(rank, size, _nodes(size, local_name))
    return None


def _nodes(size: int, local_name: str) -> int:
    local = _number(local_name)
    return max(1, -(-size // local)) if local else 1


def _number(name: str) -> int | None:
    """Return the number that an environment variable starts with ; SLURM's "4(x2)" is 4 on each of 2 nodes."""
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    digits = text.split("(")[0].split(",")[0]
    if not digits.isdigit():
        raise ValueError(f"the environment has {name}={text!r}: expected a number")
    return int(digits)
