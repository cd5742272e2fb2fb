"""`redox.MapDataset`: a data set as PyTorch's map-style `Dataset`, for code that has a sampler of its own."""

from __future__ import annotations

import operator
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import redox.iterable  # noqa: F401 - first: says what to install where PyTorch is missing

from torch.utils.data import Dataset, Subset  # isort: skip

from redox import _native
from redox.exact import Exact, exact_of, stats_of
from redox.iterate import fetched
from redox.options import flag
from redox.redirect import Redirection, batch_size_of
from redox.sample import Place, Samples, open_samples
from redox.session import added
from redox.source import OPTIONS, Source
from redox.state import VERSION, parse_state
from redox.values import TorchMaker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["MapDataset"]


class MapDataset(Source, Dataset):  # type: ignore[type-arg]
    """A data set by index. `len` is the subset, else the whole data set.

        >>> ds = redox.MapDataset("train.redox", transform=tf)                               # doctest: +SKIP
        >>> loader = torch.utils.data.DataLoader(ds, batch_size=256, shuffle=True)           # doctest: +SKIP

    By default it gives exactly the samples that are asked for, which is random reading: neighbours in one request are
    read together, and `stats()` tells what it costs. With `redirect=True` a DataLoader's requests are answered with the
    plan's next samples of this rank instead: any sampler that covers an epoch once gets every sample once, at the speed
    of reading whole chunks. Then an index that comes twice in an epoch, more requests than the rank's share and a call
    through `torch.utils.data.Subset` raise `ValueError`; a new iteration of the DataLoader or `set_epoch` leaves the
    rest of the old one; `ds[i]` alone stays exact; resuming needs `load_state_dict`, not skipped batches.

    Args:
        path: Folder of the data set.
        redirect: Answer requests with the plan's next samples.
        batch_size: With `redirect`, of the plan; None: that of the DataLoader, else the length of the first request.
        rank: With `redirect`, as `world_size`, `nodes` and what else decides the order; see `redox.RedoxDataset`, also
            for the other options.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        redirect: bool = False,
        batch_size: int | None = None,
        shuffle: bool = True,
        shuffle_seed: int = 0,
        drop_last: bool = False,
        pad: bool | str | None = None,
        subset: tuple[float, float] | tuple[int, int] | Sequence[int] | Any = None,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        fields: Sequence[str] | None = None,
        decode: bool = True,
        with_index: bool | str = False,
        memory_limit: int | str = "auto",
        window: int | None = None,
        partitions: int = 64,
        io: str = "auto",
        rank: int | None = None,
        world_size: int | None = None,
        nodes: int | None = None,
        exchange: str | float = "local",
        keep: str = "epoch",
        timeout: float = 120.0,
        on_error: str = "raise",
        max_skipped: int = 1000,
    ) -> None:
        given = {name: value for name, value in locals().items() if name in OPTIONS}
        self._redirect = flag("redirect", redirect)
        self._sized = batch_size is not None
        if batch_size is None:
            given["batch_size"] = 1  # until the first request says
        Source.__init__(
            self, path, given, transform=transform, target_transform=target_transform, decode=decode,
            with_index=with_index, world=(rank, world_size, nodes), exactly=not self._redirect,
        )  # fmt: skip
        self._redirection: Redirection | None = None
        self._exact: Exact | None = None

    def __len__(self) -> int:
        """Samples of the subset, else of the data set."""
        return self.size if self._options.subset is None else self._options.subset.size

    def __getitem__(self, index: int) -> Any:
        """Return the sample at an index, exactly.

        Raises:
            IndexError: There is no such index.
        """
        return self._exactly([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return the samples at these indices; with `redirect=True`, the plan's next ones."""
        frame = sys._getframe(1)
        if not self._redirect:
            return self._exactly(indices, _asker(frame, self))
        if isinstance(frame.f_locals.get("self"), Subset):
            raise ValueError(
                "redirect=True can't be asked through torch.utils.data.Subset or random_split, whose indices it would "
                "not keep: pass subset= to MapDataset, or use redirect=False"
            )
        if not self._sized:  # else the first request of one worker may be the short last batch
            self._resize(batch_size_of(frame) or len(indices))
        if self._redirection is None or self._redirection.session is not self.session:  # forked
            batch_size_of(frame)
            self._redirection = Redirection(self.session, self.presenter(TorchMaker()), len(self))
        return self._redirection.answer(indices, fetched(frame)[0])

    def _resize(self, batch_size: int) -> None:
        """Take this for the plan's batch size; epoch and position stay."""
        self._options, self._sized = replace(self._options, batch_size=batch_size), True
        earlier, self._session = self._session, None
        if earlier is not None:
            self.session.cursor = earlier.cursor

    def _exactly(self, indices: Sequence[int], fetcher: Any = None) -> list[Any]:
        numbers = [self._number(index) for index in indices]
        if not numbers:
            return []
        presenter = self.presenter(TorchMaker())
        columns = self._reader().read(numbers)
        if fetcher is not None and Place.serves(presenter, fetcher):
            return [Place(presenter, columns)] * columns.n
        if presenter.plain:
            return Samples(*open_samples(presenter, columns))
        return list(presenter.finished(columns))

    def _reader(self) -> Exact:
        if self._exact is None or self._exact.session is not self.session:  # forked, or the first
            self._exact = exact_of(self.session)
        return self._exact

    def _number(self, index: Any) -> int:
        place = operator.index(index)
        if not -len(self) <= place < len(self):
            raise IndexError(f"index {place}: the data set has {len(self)} samples")
        place %= len(self)
        return place if self._options.subset is None else self._options.subset.number(place)

    def set_epoch(self, epoch: int) -> None:
        """With `redirect=True`, let the next request begin this epoch."""
        super().set_epoch(epoch)
        if self._redirection is not None:
            self._redirection.leave()

    def stats(self) -> dict[str, Any]:
        """Return the counters `{"epoch": {...}, "total": {...}}`; of exact reading, in all only."""
        if self._redirect:
            return super().stats()
        here, there = self._reader().stats(), stats_of(self._engine(), self.world.rank)
        counts = added([one for one in (here, there) if one] or [_native.read_stats(self.session.opened.handle)])
        return {"epoch": counts, "total": dict(counts)}

    def state_dict(self, *, batches: int | None = None) -> dict[str, Any]:
        """Return where training stands; without `redirect` that is the sampler's to know."""
        if self._redirect:
            return super().state_dict(batches=batches)
        return {"version": VERSION, "dataset": self.fingerprint, "epoch": 0, "position": 0}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """With `redirect=True`, let the next request go on where the state was taken."""
        if self._redirect:
            super().load_state_dict(state)
            if self._redirection is not None:
                self._redirection.leave()
        else:
            parse_state(state, self.fingerprint)

    def __getstate__(self) -> dict[str, Any]:
        if self._redirect:
            size = batch_size_of(sys._getframe(1))
            if size is not None and not self._sized:  # workers that are not forked can't see it
                self._resize(size)
        return {**super().__getstate__(), "_redirection": None, "_exact": None}

    def __repr__(self) -> str:
        return f"MapDataset({self.path!r}, redirect={self._redirect}, samples={len(self)})"


def _asker(frame: Any, dataset: Any) -> Any:
    """Return the DataLoader's fetcher that gets what a call from this frame returns, and nobody else; or None."""
    while type(frame.f_locals.get("self")) is Subset:  # whose `__getitems__` hands on what it gets
        dataset, frame = frame.f_locals["self"], frame.f_back
    fetcher, _ = fetched(frame)
    return fetcher if fetcher is not None and fetcher.dataset is dataset else None
