"""File redirection for map-style data sets: a request for some samples is answered with the plan's next ones.

A sampler that covers an epoch once asks for every index once; which sample answers which index does not matter to
training, and lets every chunk be read once. What would break the promise "every sample once" is refused.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from torch.utils.data.dataloader import _BaseDataLoaderIter

from redox.sample import Place, Samples, open_samples

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from redox.passes import Pass
    from redox.present import Presenter
    from redox.session import Session

__all__ = ["Redirection", "batch_size_of"]


def batch_size_of(frame: FrameType | None) -> int | None:
    """Return how long the batches of a DataLoader below this frame are; None if that can't be told.

    Only the loader's iterator in the trainer's process knows; its frame is below when it pickles the data set, and it
    still is in a worker that was forked.

    Args:
        frame: Of whoever pickles or asks the data set.

    Raises:
        ValueError: It gives its workers batches in whatever order they are done. They answer without asking each other:
            of W, worker w's call k is batch kW+w.
    """
    size = None
    while frame is not None:
        loader = frame.f_locals.get("self") if "self" in frame.f_code.co_varnames else None
        if isinstance(loader, _BaseDataLoaderIter):
            if getattr(loader, "_in_order", True) is False:
                raise ValueError("in_order=False: redirect=True needs a DataLoader that keeps the order of its batches")
            found = getattr(getattr(loader, "_index_sampler", None), "batch_size", None)
            size = found if size is None and isinstance(found, int) and found > 0 else size
        frame = frame.f_back
    return size


class Redirection:
    """The pass that answers one DataLoader iteration's requests.

    Args:
        session: Of the data set.
        presenter: Makes samples of batches.
        size: Indices that can be asked for, 0 … size-1.
    """

    def __init__(self, session: Session, presenter: Presenter, size: int) -> None:
        self.session, self._presenter, self._size = session, presenter, size
        self._asker: weakref.ref[Any] | None = None  # the DataLoader's iteration that the pass belongs to
        self._pass: Pass | None = None
        self._asked = bytearray()
        self._left: list[Any] = []  # samples of the pass's latest batch that nobody got yet, last first

    def leave(self) -> None:
        """Give up the rest of the pass; the next request begins a new one."""
        self._pass, self._asker, self._left = None, None, []

    def answer(self, indices: Sequence[int], asker: Any) -> list[Any]:
        """Return the plan's next len(indices) samples of this rank.

        Args:
            indices: What is asked for; only their number and that none comes twice matters.
            asker: The DataLoader's fetcher, or None for a direct call, which goes on with the pass that is there.

        Raises:
            ValueError: An index comes again before the epoch is covered, or more are asked for than are left.
            IndexError: There is no such index.
        """
        if self._pass is None or (asker is not None and (self._asker is None or self._asker() is not asker)):
            self._begin(asker)
        self._mark(indices)
        return self._take(len(indices), asker)

    def _begin(self, asker: Any) -> None:
        self.leave()
        self._pass = self.session.new_pass()
        self._asker = None if asker is None else weakref.ref(asker)
        self._asked = bytearray(self._size)

    def _mark(self, indices: Sequence[int]) -> None:
        asked = self._asked
        for index in indices:
            if not -self._size <= index < self._size:
                raise IndexError(f"index {index}: the data set has {self._size} samples")
            if asked[index]:
                raise ValueError(
                    f"index {index} is asked for again before the epoch is covered: redirect=True needs a sampler "
                    "without repetition; call set_epoch() or make a new iteration to begin anew"
                )
            asked[index] = 1

    def _take(self, count: int, asker: Any) -> list[Any]:
        assert self._pass is not None
        if not self._left:
            columns = self._pass.next()
            if columns is not None and columns.n == count and self._presenter.plain:
                if asker is not None and Place.serves(self._presenter, asker):
                    return [Place(self._presenter, columns)] * count
                return Samples(*open_samples(self._presenter, columns))  # a whole batch, which collation finds again
            self._put(columns)
        taken: list[Any] = []
        while len(taken) < count:
            if not self._left:
                self._put(self._pass.next())
            taken.append(self._left.pop())
        return taken

    def _put(self, columns: Any) -> None:
        if columns is None:
            raise ValueError(
                f"more samples are asked for than this rank's share of the epoch ({self.session.share.samples()}): "
                "redirect=True needs a sampler that covers the epoch once, over all ranks together"
            )
        if self._presenter.plain:
            samples, _ = open_samples(self._presenter, columns)
        else:
            samples = list(self._presenter.finished(columns))
        self._left = samples[::-1]
        progress = self._pass.progress if self._pass is not None else None
        if progress is not None:
            left = self._left
            progress.pending = lambda: len(left)
