"""`redox.DataLoader`: the fastest way through PyTorch's loader, with an exact state."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from redox.iterable import RedoxDataset  # first: says what to install where PyTorch is missing

import torch.utils.data  # isort: skip

from redox.accelerated import Told, gradient_state
from redox.dealing import asked_by_lightning
from redox.errors import StateError
from redox.iterate import as_it_is
from redox.passes import Progress
from redox.state import Share

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DataLoader"]


class DataLoader(torch.utils.data.DataLoader):  # type: ignore[type-arg]
    """A `torch.utils.data.DataLoader` that takes whole batches out of a `RedoxDataset`.

        >>> loader = redox.DataLoader(redox.RedoxDataset("train.redox", batch_size=256))     # doctest: +SKIP

    It gives what `torch.utils.data.DataLoader(ds, batch_size=ds.batch_size)` would, without taking the batches apart
    into samples where no transform asks for it. Its state counts what the training loop has received. Frameworks that
    shard loaders leave it alone: the data set deals samples to ranks itself.

    Args:
        dataset: What to load; `batched=True` ones give their own batches.
        batch_size: None, or the data set's own.
        num_workers: Processes for decoding and Python transforms; reading and assembling run in threads anyway.
        collate_fn: From a list of samples to a batch; None: the default collation.
        **torch_kwargs: `pin_memory` and what else PyTorch's loader takes, but for what decides the order.

    Attributes:
        total_batch_size: Samples of a full batch of all ranks together.
        end_of_dataloader: With Accelerate: whether the batch that was given last is the last of the epoch.
        remainder: With Accelerate: samples of the last global batch without padding, 0 if it is full.

    Raises:
        TypeError: `dataset` is no `RedoxDataset`.
        ValueError: An option contradicts the data set's.
    """

    _is_accelerate_prepared = True
    use_stateful_dataloader = True
    end_of_dataloader = False
    remainder = -1

    def __init__(
        self,
        dataset: RedoxDataset,
        batch_size: int | None = None,
        num_workers: int = 0,
        *,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        **torch_kwargs: Any,
    ) -> None:
        if not isinstance(dataset, RedoxDataset):
            raise TypeError(f"redox.DataLoader takes a redox.RedoxDataset, got a {type(dataset).__qualname__}")
        if batch_size is not None and batch_size != dataset.batch_size:
            raise ValueError(f"batch_size={batch_size!r}: expected None or the data set's own, {dataset.batch_size}")
        for name in ("shuffle", "sampler", "batch_sampler"):
            if torch_kwargs.get(name):
                raise ValueError(f"{name}={torch_kwargs[name]!r}: the order is the data set's; give it to RedoxDataset")
            torch_kwargs.pop(name, None)
        if torch_kwargs.pop("drop_last", False):
            raise ValueError("drop_last=True: give it to RedoxDataset, which leaves out the last global batch")
        if collate_fn is as_it_is:  # Lightning makes a loader anew from the attributes of another one
            collate_fn = None
        if dataset.batched and collate_fn is not None:
            raise ValueError("collate_fn is for samples: a data set with batched=True gives batches; use its transform")
        batches = dataset if dataset.batched else dataset.collated(collate_fn)
        super().__init__(batches, batch_size=None, num_workers=num_workers, collate_fn=as_it_is, **torch_kwargs)

        self._given: _Given | None = None  # of the iteration that began last, if workers do the work

    def __iter__(self) -> Any:
        state = gradient_state()
        if state is None:
            return self._batches()
        share = self._share
        rest = 0 if share.drop_last or not share.padded else share.size % share.step
        return Told(state, self, self._batches(), rest, lambda: self.state_dict()["position"] >= share.size)

    def _batches(self) -> Any:
        if self.num_workers == 0:
            return super().__iter__()
        status = self.dataset.engine_status()  # type: ignore[attr-defined]
        self._given = _Given(self.dataset, 0 if status is None else status["passes"])
        return _Batches(super().__iter__(), self._given)

    @property
    def total_batch_size(self) -> int:
        """Samples of a full batch of all ranks together."""
        return self._share.step

    @property
    def _share(self) -> Share:
        share: Share = self.dataset.share  # type: ignore[attr-defined]
        return share

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        return self._share.batches()

    def batches_before(self, position: int) -> int:
        """Return how many of this loader's `len()` batches are over when an epoch goes on at a global position."""
        share = self._share
        return share.batches() - share.batches_from(position)

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be this epoch; see `RedoxDataset.set_epoch`."""
        self.dataset.set_epoch(epoch)  # type: ignore[attr-defined]
        self._given = None

    def stats(self) -> dict[str, Any]:
        """Return the counters of the data set; see `RedoxDataset.stats`."""
        stats: dict[str, Any] = self.dataset.stats()  # type: ignore[attr-defined]
        return stats

    def state_dict(self) -> dict[str, Any]:
        """Return where training stands: after the batches that this loader has given."""
        given: Any = self._given
        if self.num_workers == 0:
            given = self.dataset
        elif given is None:
            given = self._given = _Given(self.dataset, sys.maxsize)
        return {**given.state_dict(), "global_batch": self.total_batch_size}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next iteration go on where the state was taken; see `RedoxDataset.load_state_dict`.

        Raises:
            StateError: It does not fit. Also if Lightning asks, and counted batches of another global size: it would
                end the epoch after a wrong number of them (`redox.lightning.ResumeCallback` tells it the right one).
        """
        counted = state.get("global_batch") if isinstance(state, dict) else None
        if counted not in (None, self.total_batch_size) and asked_by_lightning(sys._getframe(1)):
            raise StateError(
                f"the checkpoint counts batches of {counted} samples (all ranks together), now they have "
                f"{self.total_batch_size}: Lightning would end the epoch too early or too late; pass "
                "callbacks=[redox.lightning.ResumeCallback()] to the Trainer, which converts its count"
            )
        self.dataset.load_state_dict(state)  # type: ignore[attr-defined]
        self._given = None


class _Batches:
    """An iteration with workers, and the count of what it has given."""

    def __init__(self, batches: Any, given: _Given) -> None:
        self._batches, self._given = batches, given

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> Any:
        try:
            batch = next(self._batches)
        except StopIteration:
            self._given.end()
            raise
        self._given.one_more()
        return batch


class _Given:
    """Counts what an iteration with workers has given: they run ahead, and only this side knows what was received.

    It does not hold the iteration: workers end with the last who iterates.

    Args:
        dataset: Whose batches they are.
        passes: How many the engine had seen before this one.
    """

    def __init__(self, dataset: Any, passes: int) -> None:
        self._dataset, self._passes = dataset, passes
        self._progress: Progress | None = None

    def one_more(self) -> None:
        """Take note of a batch."""
        if self._progress is None:
            self._progress = self._began(self._dataset.engine_status())
        if self._progress is not None:
            self._progress.batches += 1

    def end(self) -> None:
        """Take note of the end of the epoch."""
        if self._progress is None:
            self._progress = self._began(self._dataset.engine_status())
        if self._progress is not None:
            self._progress.done = True

    def _began(self, status: dict[str, Any] | None) -> Progress | None:
        if status is None or status["passes"] <= self._passes:
            return None
        progress = Progress(self._dataset.session.share, status["epoch"], status["start"])
        progress.done = False
        return progress

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the batches that were given."""
        session = self._dataset.session
        status = None if self._progress is not None else self._dataset.engine_status()
        progress = self._progress or self._began(status)
        if progress is not None:
            epoch, position = progress.epoch, progress.position()
        else:
            epoch, position = session.cursor.peek()
            if status is not None and status["serial"] >= session.cursor.serial and status["passes"]:
                epoch, position = status["next_epoch"], status["next_position"]
        return {**session.template(), "epoch": epoch, "position": position}
