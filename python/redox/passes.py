"""A pass over (the rest of) one epoch, and how far it is."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from redox import _native
from redox.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Callable

    from redox.columns import Columns
    from redox.session import Loader, Session
    from redox.state import Share

__all__ = ["Pass", "Progress"]


class Progress:
    """How far a pass is. Outlives it, so that a state can be told after a `break`.

    Args:
        share: How the epoch is cut.
        epoch: Which epoch.
        start: Position at which the pass began.
    """

    def __init__(self, share: Share, epoch: int, start: int) -> None:
        self.share, self.epoch, self.start = share, epoch, start
        self.batches = 0
        self.done = start >= share.size
        self.pending: Callable[[], int] = lambda: 0  # samples of the latest batch that were not handed out yet

    def position(self) -> int:
        """Return the global position up to which samples were handed out.

        Raises:
            StateError: One rank of several is in the middle of a batch: where the others are can't be told.
        """
        share = self.share
        if self.done:
            return share.size
        pending = self.pending()
        if not pending:
            return share.after(self.start, self.batches)
        if share.world > 1:
            raise StateError("with several ranks a state can be told between batches only, not in the middle of one")
        return min(share.size, self.start + self.batches * share.step) - pending


class Pass:
    """One iteration over (the rest of) an epoch. Begins when the first batch is asked for.

    Args:
        session: Of the data set.
        borrow: Lend each batch only until the next one.
    """

    def __init__(self, session: Session, *, borrow: bool = False) -> None:
        self._session = session
        self._borrow = borrow
        self._loader: Loader | None = None
        self._giver: Any = None
        self.progress: Progress | None = None

    def next(self) -> Columns | None:
        """Return the next batch; None at the end of the epoch, and from then on."""
        progress = self.progress or self._begin()
        if progress.done:
            self._give_back()
            return None
        assert self._loader is not None
        columns = self._loader.reader.lend(self._loader.handle, self._session.options.timeout, borrow=self._borrow)
        if columns is not None and columns.epoch != progress.epoch:  # Ctrl-C came with the end of the epoch
            columns = None
        if columns is None:
            progress.done = True
            self._give_back()
        else:
            progress.batches += 1
        return columns

    def _begin(self) -> Progress:
        session = self._session
        loader = self._loader = session.take()
        self._giver = weakref.finalize(self, session.give_back, loader)
        self._giver.atexit = False
        progress = Progress(session.share, *session.cursor.begin())
        loader.reader.drop()
        session.meet()
        if not progress.done:
            # Not redox_set_epoch: right after a restore that nobody read from, it would keep that one's position.
            state = {**session.template(), "epoch": progress.epoch, "position": progress.start}
            _native.restore(loader.handle, state)
        session.begin(progress, loader)
        self.progress = progress
        return progress

    def _give_back(self) -> None:
        self._loader = None
        self._giver()
