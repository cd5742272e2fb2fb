"""What Accelerate wants to know about a loader that it leaves as it is: whether this batch is the last of the epoch.

Gradient accumulation steps at the last batch, and `gather_for_metrics` drops what ranks were padded with.
"""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Told", "gradient_state"]


def gradient_state() -> Any:
    """Return where Accelerate looks for the loader that gives the batches; None if it is not in use."""
    state = sys.modules.get("accelerate.state")
    if state is None or not state.GradientState._shared_state:
        return None
    return state.GradientState()


class Told:
    """An iteration of which Accelerate is told when it gives its last batch.

    Args:
        state: Accelerate's.
        loader: That gives the batches.
        batches: Of one iteration.
        rest: Samples of the last global batch, padding left out; 0 if it is full.
        ended: Returns whether the batch that was taken last is the last one.
    """

    def __init__(self, state: Any, loader: Any, batches: Iterator[Any], rest: int, ended: Callable[[], bool]) -> None:
        self._loader, self._batches, self._ended = loader, batches, ended
        loader.end_of_dataloader, loader.remainder = False, rest
        state._add_dataloader(loader)
        self._end = weakref.finalize(self, state._remove_dataloader, loader)
        self._end.atexit = False

    def __iter__(self) -> Told:
        return self

    def __next__(self) -> Any:
        try:
            batch = next(self._batches)
        except StopIteration:
            self._end()
            raise
        self._loader.end_of_dataloader = self._ended()
        return batch
