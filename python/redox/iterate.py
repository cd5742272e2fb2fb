"""Iterating over a pass as PyTorch's loaders do: sample by sample, by whole batches, by collated batches."""

from __future__ import annotations

import sys
import threading
import weakref
from functools import partial
from operator import itemgetter, length_hint
from typing import TYPE_CHECKING, Any

from torch.utils.data import default_collate, default_convert
from torch.utils.data._utils.fetch import _BaseDatasetFetcher

from redox.sample import Place, Record, Samples, collated, open_samples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redox.columns import Columns
    from redox.passes import Pass
    from redox.present import Presenter

__all__ = ["BatchIterator", "CollatedIterator", "SampleIterator", "as_it_is", "fetched"]


def fetched(frame: Any) -> tuple[Any, Any]:
    """Return the DataLoader's fetcher in whose frame an item is asked for, and what it fetches; or (None, None).

    Between a DataLoader and an iterator there is one frame, `fetch(self, possibly_batched_index)` of a
    `_BaseDatasetFetcher`, in every process, and with torchdata's loader too. It is the only place that shows which
    batches the loader makes.
    """
    fetcher = frame.f_locals.get("self")
    if not isinstance(fetcher, _BaseDatasetFetcher):
        return None, None
    return fetcher, frame.f_locals.get("possibly_batched_index")


def as_it_is(batch: Any) -> Any:
    """Return a batch itself: the collation of those that are collated already."""
    return batch


def _unseen(fetcher: Any, iterator: Any, presenter: Presenter) -> bool:
    """Return whether what an iterator gives is pickled before anybody looks at it."""
    if fetcher is None or not (presenter.working and presenter.plain) or fetcher.auto_collation:
        return False
    return getattr(fetcher, "dataset_iter", None) is iterator and fetcher.collate_fn in (as_it_is, default_convert)


class BatchIterator:
    """Iterates over whole batches."""

    def __init__(self, one: Pass, presenter: Presenter) -> None:
        self._pass, self._presenter = one, presenter
        self._turn = threading.Lock()  # threads that share an iterator would each begin a pass
        self._checked = self._unseen = False
        self._lease: Any = None  # in borrow mode what keeps the latest batch's memory

    def __iter__(self) -> BatchIterator:
        return self

    def __next__(self) -> Any:
        if not self._checked:
            fetcher, _ = fetched(sys._getframe(1))
            if fetcher is not None and fetcher.auto_collation:
                raise ValueError(
                    "a data set with batched=True gives whole batches: use DataLoader(ds, batch_size=None)"
                )
            self._checked = True
            self._unseen = self._presenter.transform is None and _unseen(fetcher, self, self._presenter)
        with self._turn:
            self._lease = None
            columns = self._pass.next()
            if columns is None:
                raise StopIteration
            self._lease = columns.lease
        return self._presenter.batch(columns, unseen=self._unseen)


class SampleIterator:
    """Iterates over samples. Keeps the record of its latest batch, by which the collation finds the batch again."""

    def __init__(self, one: Pass, presenter: Presenter, batch_size: int) -> None:
        self._pass, self._presenter, self._batch_size = one, presenter, batch_size
        self._rows: Iterator[Any] = iter(())
        self._rest: Iterator[Any] = self._rows  # as long as what is left of the batch
        self._record: Record | None = None
        self._turn = threading.Lock()  # threads that share an iterator would drop what is left of each other's batch
        self._checked = False

    def __iter__(self) -> SampleIterator:
        return self

    def __next__(self) -> Any:
        if not self._checked:
            self._check(*fetched(sys._getframe(1)))
        for sample in self._rows:
            return sample
        with self._turn:
            while True:
                for sample in self._rows:
                    return sample
                columns = self._pass.next()
                if columns is None:
                    raise StopIteration  # the record stays: a short last batch is collated after this
                fetcher, index = fetched(frame := sys._getframe(1))
                # The fetcher must be about to ask for all of the batch, and for nothing else.
                whole = getattr(fetcher, "dataset_iter", None) is self and frame.f_locals.get("data") == []
                self._open(columns, whole and len(index) >= columns.n and Place.serves(self._presenter, fetcher))

    def _open(self, columns: Columns, unseen: bool) -> None:
        progress = self._pass.progress
        assert progress is not None
        if unseen:
            self._record = None
            self._rows = self._rest = iter([Place(self._presenter, columns)] * columns.n)
        elif self._presenter.plain:
            samples, self._record = open_samples(self._presenter, columns)
            self._rows = self._rest = iter(samples)
        else:
            self._rest = iter(range(columns.n))
            self._record = None
            self._rows = map(itemgetter(1), zip(self._rest, self._presenter.finished(columns)))  # noqa: B905
        progress.pending = partial(_left, weakref.ref(self))

    def _check(self, fetcher: Any, index: Any) -> None:
        """Refuse a DataLoader that makes other batches than the plan."""
        if fetcher is not None and fetcher.auto_collation and len(index) != self._batch_size:
            raise ValueError(
                f"batch_size={len(index)} of the DataLoader is not batch_size={self._batch_size} of the RedoxDataset: "
                "the order is made for one batch size, give both the same"
            )
        self._checked = True

    def __del__(self) -> None:
        progress = self._pass.progress
        if progress is not None:
            progress.pending = partial(int, length_hint(self._rest))


def _left(samples: weakref.ref[SampleIterator]) -> int:
    """Return how many samples of an iterator's latest batch were not handed out yet."""
    iterator = samples()
    return 0 if iterator is None else length_hint(iterator._rest)


class CollatedIterator:
    """Iterates over what a DataLoader would make of the samples of each batch.

    Args:
        one: The pass.
        presenter: Of samples.
        collate: From a list of samples to a batch; None: the default collation.
    """

    def __init__(self, one: Pass, presenter: Presenter, collate: Callable[[list[Any]], Any] | None) -> None:
        self._pass, self._presenter, self._collate = one, presenter, collate
        self._unseen: bool | None = None
        self._turn = threading.Lock()

    def __iter__(self) -> CollatedIterator:
        return self

    def __next__(self) -> Any:
        with self._turn:
            columns = self._pass.next()
        if columns is None:
            raise StopIteration
        if not self._presenter.plain:
            return (self._collate or default_collate)(list(self._presenter.finished(columns)))
        if self._collate is None:
            if self._unseen is None:
                self._unseen = _unseen(fetched(sys._getframe(1))[0], self, self._presenter)
            return collated(self._presenter, columns, unseen=self._unseen)
        return self._collate(Samples(*open_samples(self._presenter, columns)))
