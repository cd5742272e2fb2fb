"""How the nodes of a job find each other: each publishes its card where all can read it, and reads those of the others.

That place is a store that the job has anyway: the one of an initialised process group, or that of torchrun's agents.
It is always reached by a new connection, because forked workers can't use their parent's. Where the environment names
all nodes (REDOX_PEERS) nothing is published. No process group is ever started, no collective made, and PyTorch is only
imported where such a store is.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import queue
import sys
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from redox.errors import Error, PeerError, StallError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redox.options import Options
    from redox.world import World

__all__ = ["Meeting", "Place", "exchanging", "short"]

_log = logging.getLogger("redox")

_AGAIN_S = 3.0  # for those who have met before: they can go on without
_CONNECT_S = 10.0  # at least, for connecting to nodes whose cards came late
_LOST_S = 60.0  # between two looks for a store that was lost
_SWAP_S = 2.0  # for what a store answers at once, beyond the patience with the other nodes
_GRACE_S = 3.0  # before what a missing node did instead is looked at


def exchanging(options: Options, world: World) -> bool:
    """Return whether the nodes send each other samples."""
    return world.nodes > 1 and options.shuffle and options.exchange != "off"


@dataclass(frozen=True)
class Place:
    """Where the nodes of a job meet, as the training process found it; its workers are told.

    Attributes:
        host: Of the store; "" where the environment names the nodes.
        port: Of the store.
        job: Tells the runs of a job apart that use one store.
    """

    host: str
    port: int
    job: str

    @classmethod
    def here(cls) -> Place | None:
        """Return the place that this process's environment means; None if there is none."""
        job = "/".join(os.environ.get(name, "") for name in ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"))
        if os.environ.get("REDOX_PEERS"):
            return cls("", 0, job)
        found = _group_store()
        if found is None and "TORCHELASTIC_RUN_ID" in os.environ:
            host, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
            found = (host, int(port)) if host and port.isdigit() else None
        return None if found is None else cls(*found, job)


def _group_store() -> tuple[str, int] | None:
    """Return where the store of the initialised process group is, if that can be reached from elsewhere."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    store = sys.modules["torch.distributed.distributed_c10d"]._get_default_store()
    while isinstance(store, distributed.PrefixStore):
        store = store.underlying_store
    return (store.host, store.port) if isinstance(store, distributed.TCPStore) else None


class Meeting:
    """One data set's nodes in search of each other.

    Args:
        place: Where; None: nobody knows.
        world: Of which this process is a rank.
        name: Of the data set among those of the program: its own and how manyth of that name it is.
        number: How manyth data set of the program it is.
        engine: Whether an engine process is to be connected, not this one.
    """

    def __init__(self, place: Place | None, world: World, name: tuple[str, int], number: int, *, engine: bool) -> None:
        self._place, self._world, self._name, self._number, self._engine = place, world, name, number, engine
        self._looks = 0.0  # not before, once the store could not be reached

    def options(self) -> dict[str, Any]:
        """Return the options of a mesh, beyond those of its loaders.

        Raises:
            ValueError: There is no place where the nodes could meet.
        """
        if self._place is None:
            raise ValueError(
                f"{self._world.nodes} nodes are to exchange samples, and have no place to find each other: start them "
                "with torchrun, or initialise the process group before the first iteration, or set "
                "REDOX_PEERS=host:port,host:port,... and REDOX_TOKEN; or pass exchange='off' (each node then reads "
                "what its ranks need from shared storage)"
            )
        # A data set may be loaded by this process and by an engine, and both listen.
        return {"reach": self._place.host, "ordinal": 2 * self._number + self._engine}

    def hold(self, card: bytes, meet: Callable[[bytes, float], None], timeout_s: float) -> None:
        """Publish this node's card, wait for those of the others, and let the nodes connect.

        Args:
            card: Of this node, JSON.
            meet: Takes the cards of all nodes (empty: the environment has them) and seconds to wait until all are
                connected.
            timeout_s: How long the other nodes may take.

        Raises:
            StallError: A node did not come, or can't be reached.
            PeerError: The store can't be reached, or a node refuses this one.
            ValueError: The nodes do not have the same data set and options.
        """
        told = json.loads(card)
        if told["static"]:
            meet(b"", 0.0 if told["met"] else timeout_s)
            return
        assert self._place is not None  # or options would have raised
        began = time.monotonic()
        if told["met"] and began < self._looks:
            return
        try:
            cards, again = self._cards(card, timeout_s, known=told["met"])
        except (PeerError, StallError) as error:
            if not told["met"]:
                raise
            self._looks = time.monotonic() + _LOST_S
            _log.warning("node %d can't look for nodes that were started anew: %s", self._world.node, error)
            return
        left = max(timeout_s - (time.monotonic() - began), min(timeout_s, _CONNECT_S))
        # Nodes that run already look for this one when they begin their next epoch.
        meet(short(cards, told.get("terms")), 0.0 if again else left)

    def _cards(self, card: bytes, timeout_s: float, *, known: bool) -> tuple[list[bytes], bool]:
        """Do what `_swap` does, in a thread: where the store's process is frozen, PyTorch waits for it for ever."""
        place = self._place
        assert place is not None
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        until = time.monotonic() + timeout_s

        def swap() -> None:
            try:
                answers.put(self._swap(_connect(place, connect_s), card, until, known=known))
            except BaseException as error:
                answers.put(error)  # for who waits

        connect_s = _AGAIN_S if known else timeout_s
        threading.Thread(target=swap, name="redox-meet", daemon=True).start()
        with _reached(place):
            try:
                answer = answers.get(timeout=connect_s + _SWAP_S)
            except queue.Empty:
                raise TimeoutError("it does not answer") from None
            if isinstance(answer, BaseException):
                raise answer
            return answer  # type: ignore[no-any-return]

    def _swap(self, store: Any, card: bytes, until: float, *, known: bool) -> tuple[list[bytes], bool]:
        """Publish a card; return those of all nodes, and whether this node has been here before.

        Args:
            store: Where they meet.
            card: Of this node.
            until: When to give up, as `time.monotonic` has it.
            known: Whether it has been here before.
        """
        prefix = f"redox/{self._place.job if self._place else ''}/{'engine' if self._engine else 'trainer'}"
        by_name = f"{prefix}/{self._name[0]}/{self._name[1]}"
        by_number = f"{prefix}/number/{self._number}"
        mine, all_nodes = self._world.node, range(self._world.nodes)
        again = known or store.check([f"{by_name}/{mine}"])
        store.set(f"{by_name}/{mine}", card)
        store.set(f"{by_number}/{mine}", self._name[0])
        began, pause = time.monotonic(), 0.005
        grace = min(_GRACE_S, (until - began) / 2)
        missing = [node for node in all_nodes if node != mine]
        while True:
            missing = [node for node in missing if not store.check([f"{by_name}/{node}"])]
            waited = time.monotonic() - began
            if not missing:
                return [card if node == mine else store.get(f"{by_name}/{node}") for node in all_nodes], again
            if waited > grace:
                self._compare(store, by_number, missing)
            if time.monotonic() > until:
                raise _nobody(missing, self._world.nodes, waited)
            time.sleep(pause)
            pause = min(0.2, 2 * pause)

    def _compare(self, store: Any, prefix: str, missing: list[int]) -> None:
        """Raise ValueError if a node that does not come is waiting with another data set."""
        for node in missing:
            if store.check([f"{prefix}/{node}"]):
                other = store.get(f"{prefix}/{node}").decode()
                if other != self._name[0]:
                    raise ValueError(
                        f"node {node} loads another data set (fingerprint {other}) than node {self._world.node} "
                        f"(fingerprint {self._name[0]}): all nodes must load the same data sets in the same order"
                    )


def short(cards: list[bytes], terms: Any) -> bytes:
    """Return cards as one JSON array, without the terms of those that agree with this node, which are most of it.

    Args:
        cards: Of all nodes.
        terms: Of this one.
    """
    listed = [json.loads(card) for card in cards]
    for card in listed:
        if card.get("terms") == terms:
            card.pop("terms", None)
    wanted = ("node", "address", "fingerprint", "incarnation", "seal", "terms")
    kept = [{name: card[name] for name in wanted if name in card} for card in listed]
    return json.dumps(kept, separators=(",", ":")).encode()


@contextlib.contextmanager
def _reached(place: Place) -> Iterator[None]:
    """Make PeerError of what PyTorch raises when a store is lost."""
    distributed: Any = importlib.import_module("torch.distributed")
    try:
        yield
    except (distributed.DistError, OSError) as error:
        if isinstance(error, Error):
            raise
        raise PeerError(
            f"the store at {place.host}:{place.port}, where the nodes meet, can't be reached: {error}", peer=place.host
        ) from None


def _connect(place: Place, timeout_s: float) -> Any:
    """Return a new connection to the store."""
    distributed: Any = importlib.import_module("torch.distributed")
    return distributed.TCPStore(
        place.host, place.port, is_master=False, timeout=timedelta(seconds=timeout_s), wait_for_workers=False
    )


def _nobody(missing: list[int], nodes: int, waited: float) -> StallError:
    who = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
    return StallError(
        f"{'node' if len(missing) == 1 else 'nodes'} {who} of {nodes} did not come for {waited:.0f} s: all nodes must "
        "iterate over the data set (timeout= is how long they wait for each other)"
    )
