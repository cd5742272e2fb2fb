"""Which rank this process is, of how many, on how many nodes.

Found, in this order: in the arguments; in an initialised process group of PyTorch; in the environment of torchrun, of
a SLURM step, of Open MPI; else one rank on one node. Nothing here starts a process group or talks to anybody.
"""

from __future__ import annotations

import operator
import os
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redox.options import whole

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MOST_RANKS", "World"]

MOST_RANKS = 1 << 20


@dataclass(frozen=True)
class World:
    """One process's place among those that share an epoch.

    Attributes:
        rank: This process, 0 … size-1.
        size: Ranks in all.
        nodes: Machines that they are on, with consecutive ranks on each.
        uneven: How many ranks each node has, where they do not have size/nodes (the first ones one more where that does
            not divide); else empty.
    """

    rank: int = 0
    size: int = 1
    nodes: int = 1
    uneven: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"world_size={self.size}: expected at least 1")
        if not 0 <= self.rank < self.size:
            raise ValueError(f"rank={self.rank}: expected 0 to world_size-1 = {self.size - 1}")
        if not 1 <= self.nodes <= self.size:
            raise ValueError(f"nodes={self.nodes}: expected 1 to world_size = {self.size}")
        if self.uneven and (min(self.uneven) < 1 or sum(self.uneven) != self.size):
            raise ValueError(
                f"nodes={list(self.uneven)}: expected at least one rank on each, and world_size = {self.size} in all"
            )

    @property
    def ranks(self) -> tuple[int, ...]:
        """How many ranks each node has."""
        few, more = divmod(self.size, self.nodes)
        return self.uneven or tuple(few + (node < more) for node in range(self.nodes))

    @property
    def node(self) -> int:
        """Which node this rank is on."""
        before = 0
        for node, ranks in enumerate(self.ranks):
            before += ranks
            if self.rank < before:
                return node
        raise AssertionError(self)

    @property
    def ranks_here(self) -> int:
        """Ranks on this node."""
        return self.ranks[self.node]

    @classmethod
    def of(cls, rank: int, size: int, nodes: Any) -> World:
        """Return a world whose nodes are given as their number, or as how many ranks each has."""
        if isinstance(nodes, bool):
            raise ValueError(f"nodes={nodes!r}: expected a number, or how many ranks each node has")
        if hasattr(nodes, "__index__"):
            return cls(rank, size, operator.index(nodes))
        try:
            ranks = tuple(map(operator.index, nodes))
        except TypeError:
            raise ValueError(f"nodes={nodes!r}: expected a number, or how many ranks each node has") from None
        even = cls(rank, size, len(ranks))
        return even if even.ranks == ranks else cls(rank, size, len(ranks), ranks)

    @classmethod
    def resolve(
        cls, rank: int | None = None, size: int | None = None, nodes: int | Sequence[int] | None = None
    ) -> World:
        """Return the world that this process is in.

        Args:
            rank: The argument `rank` of the data set.
            size: Its argument `world_size`.
            nodes: Its argument `nodes`.

        Raises:
            ValueError: Arguments or environment contradict themselves, or WORLD_SIZE > 1 comes without a rank.
        """
        if size is None and rank is None:
            here = _process_group(nodes) or _environment(nodes)
            return here or cls.of(0, 1, 1 if nodes is None else nodes)
        if size is None:
            raise ValueError(f"rank={rank} was given without world_size: expected both or neither")
        size = whole("world_size", size, 1, MOST_RANKS)
        if rank is None and size > 1:
            raise ValueError(f"world_size={size} was given without rank: expected both or neither")
        rank = whole("rank", 0 if rank is None else rank, 0, size - 1)
        if nodes is not None:
            return cls.of(rank, size, nodes)
        try:
            found = _process_group(None) or _environment(None)
        except ValueError:  # about a world that the arguments replace
            found = None
        return cls.of(rank, size, found.ranks if found is not None and found.size == size else 1)


def _process_group(nodes: Any) -> World | None:
    """Return the world of an initialised process group, without importing torch for it."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    size = distributed.get_world_size()
    node_name = "GROUP_RANK" if _number("WORLD_SIZE") == size else ""  # else torchrun's ranks are other ones
    here = _layout(size, nodes, "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", node_name)
    return _checked(World.of(distributed.get_rank(), size, here[0]), here[1])


_LAUNCHERS = (  # rank, world size, ranks on this node (or on all), number of nodes, this node
    ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "GROUP_RANK"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_NUM_NODES", "SLURM_NODEID"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "", ""),
)


def _environment(nodes: Any) -> World | None:
    for rank_name, size_name, local_name, nodes_name, node_name in _LAUNCHERS:
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
        here = _layout(size, nodes, local_name, nodes_name, node_name)
        return _checked(World.of(rank, size, here[0]), here[1])
    return None


def _layout(size: int, given: Any, local_name: str, nodes_name: str, node_name: str) -> tuple[Any, str]:
    """Return the nodes of a world, and the variable that has this one's number, if there is one to compare with.

    From where its ranks come, else from another launcher with as many: scripts hand on SLURM's numbers as RANK and
    WORLD_SIZE.
    """
    if given is not None:
        return given, ""
    if not os.environ.get(local_name, "").strip() and not os.environ.get("REDOX_PEERS"):
        for _, size_name, local, nodes, node in _LAUNCHERS:
            if os.environ.get(local, "").strip() and _number(size_name) == size:
                return _nodes(size, local, nodes), node
    return _nodes(size, local_name, nodes_name), node_name


def _checked(world: World, node_name: str) -> World:
    """Compare the node that a rank must be on, ranks being consecutive, with the one that the launcher names."""
    node = _number(node_name) if node_name and world.nodes > 1 else None
    if node is not None and node != world.node:
        raise ValueError(
            f"rank {world.rank} of {world.size} is on node {node} ({node_name}), expected it on node {world.node}: "
            "give the nodes consecutive ranks (srun --distribution=block), and where they have different numbers of "
            "ranks pass nodes=[ranks of node 0, of node 1, ...]"
        )
    return world


_TASKS = re.compile(r"(\d+)(?:\(x(\d+)\))?")  # SLURM's "4(x2),1": 4 on each of 2 nodes, 1 on the third


def _nodes(size: int, local_name: str, nodes_name: str) -> Any:
    """Return how many nodes there are, or how many ranks each has."""
    text = os.environ.get(local_name, "").strip()
    parts = text.split(",") if text else []
    counts: list[int] = []
    for part in parts:
        match = _TASKS.fullmatch(part)
        if match is None:
            raise ValueError(f"the environment has {local_name}={text!r}: expected a number")
        counts += [int(match[1])] * int(match[2] or 1)
    if sum(counts) == size:
        return counts
    nodes = _number(nodes_name) if nodes_name else None
    if not counts:
        peers = os.environ.get("REDOX_PEERS")  # names one address for each node
        named = peers.count(",") + 1 if peers else 1
        if named > size:
            raise ValueError(
                f"the environment has REDOX_PEERS={peers!r}: {named} addresses, one for each node, but {size} ranks"
            )
        return named
    if len(counts) == 1 and nodes is None and size % counts[0] == 0:
        return size // counts[0]
    if len(counts) == 1 and nodes is not None and nodes * counts[0] == size:
        return nodes
    raise ValueError(
        f"the nodes have different numbers of ranks ({local_name}={text} of {size} in all): pass "
        "nodes=[ranks of node 0, of node 1, ...], the same everywhere"
    )


def _number(name: str) -> int | None:
    """Return the number that an environment variable has."""
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    if not text.isdigit():
        raise ValueError(f"the environment has {name}={text!r}: expected a number")
    return int(text)
