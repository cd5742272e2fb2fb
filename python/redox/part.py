"""The state of one DataLoader worker, as torchdata's `StatefulDataLoader` saves it and restores it in a worker.

A worker knows which batch it will make next, but not how many the training loop has received from all workers. When
they are restored, their next batches are W consecutive ones of an iteration, W being the number of workers. So whoever
comes first lets the iteration begin W - 1 batches before its own next one, which is not too late for the others, and
each leaves out those before its own. States of `redox.DataLoader`, or `state_dict(batches=k)`, need no such care.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redox.errors import StateError

if TYPE_CHECKING:
    from redox.crew import Crew
    from redox.state import Share

__all__ = ["Part", "refuse_part"]


@dataclass(frozen=True)
class Part:
    """What a worker was about to do.

    Attributes:
        origin: Global position from which the batches of its iteration are counted.
        next: Number of the batch that it makes next.
    """

    origin: int
    next: int

    @classmethod
    def parse(cls, state: dict[str, Any], crew: Crew) -> Part | None:
        """Return the part that a state tells of; None if it is no worker's state.

        Raises:
            StateError: It is another worker's.
        """
        worker = state.get("worker")
        if worker is None:
            return None
        if worker[:2] != [crew.worker, crew.workers]:
            raise StateError(
                f"the state is of DataLoader worker {worker[0]} of {worker[1]}, this is worker {crew.worker} of "
                f"{crew.workers}: restore it with the same number of workers, or use a state of redox.DataLoader"
            )
        return cls(state["position"], worker[2])

    def told(self, crew: Crew) -> list[int]:
        """Return what a worker's state has beside what all states have."""
        return [crew.worker, crew.workers, self.next]

    def start(self, share: Share, crew: Crew) -> int:
        """Return the position at which an iteration has to begin for this worker and all others."""
        return min(share.size, self.origin + max(0, self.next - crew.workers + 1) * share.step)

    def before(self, share: Share, start: int) -> int:
        """Return how many batches of the original iteration lie before the position at which the restored one began."""
        return -(-(start - self.origin) // share.step)


def refuse_part(state: Any) -> None:
    """Raise if a state is a worker's: it tells nothing of the others."""
    if isinstance(state, dict) and state.get("worker") is not None:
        raise StateError(
            f"the state is of DataLoader worker {state['worker'][0]} of {state['worker'][1]}: only the loader that "
            "saved it can restore it; use a state of redox.DataLoader, or of the data set itself"
        )
