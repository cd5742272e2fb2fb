"""Where training stands: epochs, positions, and the small dict that carries both to another run.

A *position* counts samples of the global order, those of all ranks. So a state says the same to any number of ranks,
nodes and workers, and to any batch size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from redox.errors import StateError

__all__ = ["VERSION", "Cursor", "Share", "parse_state"]

VERSION = 1


@dataclass(frozen=True)
class Share:
    """How an epoch of `size` samples is cut for one rank.

    Attributes:
        size: Samples of an epoch, all ranks together.
        batch_size: Of one rank.
        world: Number of ranks.
        rank: Which one.
        drop_last: Whether an incomplete last global batch is left out.
        padded: Whether ranks are padded to equal numbers.
    """

    size: int
    batch_size: int
    world: int = 1
    rank: int = 0
    drop_last: bool = False
    padded: bool = True

    @property
    def step(self) -> int:
        """Positions of a full global batch."""
        return self.batch_size * self.world

    def samples(self, start: int = 0) -> int:
        """Samples that this rank gets in a whole epoch, or in what is left of it from a position."""
        full, rest = divmod(self.size - min(start, self.size), self.step)
        return full * self.batch_size + (0 if self.drop_last else self._rest(rest))

    def batches(self) -> int:
        """Batches that this rank gets in a whole epoch."""
        return self.batches_from(0)

    def batches_from(self, start: int) -> int:
        """Batches that this rank gets from a position on."""
        return -(-self.samples(start) // self.batch_size)

    def _rest(self, rest: int) -> int:
        if self.padded:
            return -(-rest // self.world)
        return rest // self.world + (self.rank < rest % self.world)

    def after(self, start: int, batches: int) -> int:
        """Return the position after so many global batches from `start`; `size` once no batch is left."""
        position = start + batches * self.step
        if position >= self.size or (self.drop_last and self.size - position < self.step):
            return self.size
        return position

    def before(self, position: int) -> int:
        """Return how many of the epoch's batches lie before a position (rounded up)."""
        return -(-position // self.step)


class Cursor:
    """Which epoch the next iteration is, and where in it it begins.

    Without a word from the user every iteration is the next epoch.

    Args:
        size: Samples of an epoch.

    Attributes:
        serial: Counts what was said and done here, so that of several copies of this object the newest is known.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._epoch = 0
        self._position = 0
        self._named = False  # set_epoch was called since a state was loaded
        self.serial = 0

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be this epoch. A loaded position in the same epoch is kept."""
        if epoch != self._epoch or self._position == 0:
            self._position = 0
        self._epoch, self._named = epoch, True
        self.serial += 1

    def load(self, epoch: int, position: int) -> None:
        """Let the next iteration go on from here; from the next epoch if this one is used up."""
        self._epoch, self._position, self._named = epoch, min(position, self._size), False
        self.serial += 1

    def peek(self) -> tuple[int, int]:
        """Return the epoch and position that the next iteration would begin with."""
        return self._epoch, self._position

    def word(self) -> tuple[int, int, int, int]:
        """Return serial number, epoch, position, and whether the epoch was named: for an engine process."""
        return self.serial, self._epoch, self._position, int(self._named)

    def begin(self) -> tuple[int, int]:
        """Return the epoch and position for an iteration that begins now, and go on to the next epoch."""
        epoch, position = self._epoch, self._position
        if position >= self._size and not self._named:
            epoch, position = epoch + 1, 0
        self._epoch, self._position, self._named = epoch + 1, 0, False
        self.serial += 1
        return epoch, position


def parse_state(state: Any, fingerprint: str) -> tuple[int, int]:
    """Return epoch and position of a state.

    Args:
        state: What `state_dict()` gave, perhaps through JSON.
        fingerprint: Of the data set that it is for.

    Raises:
        StateError: It is no state, of a newer version, or of another data set.
    """
    if not isinstance(state, dict) or "version" not in state:
        raise StateError(
            f"expected a state of Redox (a dict with version, dataset, epoch, position), got {_shown(state)}"
        )
    version = state["version"]
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise StateError(f"the state has version={version!r}: expected a whole number from 1")
    if version > VERSION:
        raise StateError(f"the state has version {version}, this Redox reads up to {VERSION}: update redox-loader")
    if state.get("dataset") != fingerprint:
        raise StateError(f"the state is of data set {state.get('dataset')}, this is data set {fingerprint}")
    epoch, position = state.get("epoch"), state.get("position")
    for name, value in (("epoch", epoch), ("position", position)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise StateError(f"the state has {name}={value!r}: expected a whole number from 0")
    return int(state["epoch"]), int(state["position"])


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 100 else text[:97] + "..."
