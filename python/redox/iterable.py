"""`redox.RedoxDataset`: a data set as PyTorch's `IterableDataset`, in the plan's order."""

from __future__ import annotations

import os
import sys
import weakref
from functools import partial
from operator import itemgetter, length_hint
from typing import TYPE_CHECKING, Any

try:
    import torch
except ImportError:
    raise ImportError(
        "redox.RedoxDataset, MapDataset and DataLoader need PyTorch: pip install torch, or read without it by "
        "redox.open(path).batches(...)"
    ) from None
from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.data._utils.fetch import _BaseDatasetFetcher

from redox.facts import Facts
from redox.options import Options, flag, whole
from redox.present import Presenter, check_with_index
from redox.sample import Record, open_samples
from redox.session import Pass, Session, share_of
from redox.state import parse_state
from redox.subset import Subset
from redox.values import TorchMaker
from redox.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from redox.columns import Columns

__all__ = ["RedoxDataset", "Source", "refuse_workers"]


class Source:
    """What `RedoxDataset` and `MapDataset` share: a data set, its options, and the session of this process."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        given: dict[str, Any],
        *,
        transform: Any,
        target_transform: Any,
        decode: Any,
        with_index: Any,
        world: tuple[int | None, int | None, int | None],
    ) -> None:
        self._facts = Facts.read(path)
        self._options = Options(**{**given, "subset": Subset.parse(given["subset"], self._facts.samples)})
        chosen = self._facts.choose(None if self._options.fields is None else tuple(self._options.fields))
        self._transform = _callable("transform", transform)
        self._target_transform = _callable("target_transform", target_transform)
        self._decode = flag("decode", decode)
        self._with_index = check_with_index(with_index)
        if self._options.pad == "mark" and self._with_index in (None, "key"):
            raise ValueError(f"pad='mark' needs with_index=True or 'source', got with_index={with_index!r}")
        if target_transform is not None and (self._facts.layout != "tuple" or len(chosen) < 2):
            raise ValueError("target_transform: the samples have no second value; use transform, which takes the sample")
        self._asked = world
        if world != (None, None, None):
            World.resolve(*world)  # arguments are checked when they are given
        self._world: World | None = None
        self._session: Session | None = None

    @property
    def path(self) -> str:
        """Where the data set is, absolute."""
        return self._facts.path

    @property
    def size(self) -> int:
        """Samples of the data set, whatever the subset."""
        return self._facts.samples

    @property
    def fields(self) -> dict[str, str]:
        """The kinds of the fields that the samples have, by name."""
        chosen = self._facts.choose(None if self._options.fields is None else tuple(self._options.fields))
        return {f.name: f.text for f in chosen}

    @property
    def classes(self) -> list[str]:
        """Names of the classes, by label; empty if the data set has none."""
        return list(self._facts.classes)

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The labels of the classes, by name."""
        return {name: label for label, name in enumerate(self._facts.classes)}

    @property
    def fingerprint(self) -> str:
        """Identifies the content of the data set."""
        return self._facts.fingerprint

    @property
    def batch_size(self) -> int:
        """Samples of one rank's full batch."""
        return self._options.batch_size

    @property
    def world(self) -> World:
        """Which rank this is, of how many; found out at the first use and kept."""
        if self._world is None:
            self._world = World.resolve(*self._asked)
        return self._world

    @property
    def session(self) -> Session:
        """What this process holds for this object; made at the first use."""
        if self._session is None:
            self._session = Session(self._facts, self._options, self.world)
        return self._session

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be this epoch; without it every iteration is the next one.

        After `load_state_dict` with a state of the same epoch the position in it is kept.
        """
        self.session.set_epoch(whole("epoch", epoch, 0, (1 << 63) - 1))

    def stats(self) -> dict[str, Any]:
        """Return the counters `{"epoch": {...}, "total": {...}}` of this rank and its node."""
        return self.session.stats()

    def state_dict(self, *, batches: int | None = None) -> dict[str, Any]:
        """Return where training stands: a small dict that JSON can hold, the same on every rank.

        Args:
            batches: The state after so many batches of this rank's epoch, counted from the beginning of the epoch (an
                epoch that was resumed too), instead of after those that were handed out.

        Raises:
            StateError: It can't be told.
        """
        if batches is not None:
            batches = whole("batches", batches, 0, (1 << 63) - 1)
        return self.session.state(batches)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next iteration go on where this state was taken, on any number of ranks, with any batch size.

        Raises:
            StateError: It is of another data set or order, or of a newer version.
        """
        epoch, position = parse_state(state, self._facts.fingerprint)
        self.session.expect(state)
        self.session.load(epoch, position)

    def __getstate__(self) -> dict[str, Any]:
        self.world  # noqa: B018 - found out where the object was made, not where it is unpickled
        where = self._session.cursor if self._session is not None else None
        return {**self.__dict__, "_session": None, "_where": where}

    def __setstate__(self, state: dict[str, Any]) -> None:
        where = state.pop("_where")
        self.__dict__.update(state)
        if where is not None:
            self.session.cursor = where


class RedoxDataset(Source, IterableDataset):  # type: ignore[type-arg]
    """A data set in the plan's order: every sample once an epoch, every chunk read once, the same for a seed.

        >>> ds = redox.RedoxDataset("train.redox", batch_size=256, transform=tf)         # doctest: +SKIP
        >>> loader = torch.utils.data.DataLoader(ds, batch_size=256, pin_memory=True)    # doctest: +SKIP

    Iterating gives samples as they were packed: arrays as tensors, numbers as Python numbers, images as `PIL.Image`.
    What it gives is the caller's to keep. Making the object, pickling it and asking for its facts loads no library;
    the first iteration does.

    Args:
        path: Folder of the data set.
        batch_size: Samples of one rank's batch; must be the DataLoader's. `world_size x batch_size` positions of the
            global order are one global batch.
        shuffle: False: stored order; rank r gets positions r*B … (r+1)*B-1 of each full global batch.
        shuffle_seed: The order is a function of it; must be the same on all ranks.
        drop_last: Leave out the last incomplete global batch.
        pad: None, True: ranks get equal numbers, the missing samples taken from the epoch's start. "mark": the same,
            and their index is -1 - i (needs `with_index`). False: a rank may get a sample or a batch less.
        subset: `(0.0, 0.9)` fractions of the stored numbers, `(lo, hi)` stored numbers, or an integer array of them.
        transform: Called with the first value of tuple samples, with dict and scalar samples; with `batched=True`,
            with the batch. May raise `redox.SkipSample` under `on_error="skip"`.
        target_transform: Called with the second value of tuple samples.
        fields: Names of the fields to read; None: all.
        decode: False: images as encoded bytes.
        with_index: True or "stored", "source", "key": add the number or key; last in tuples, "__index__" in dicts.
        batched: Iterate over whole batches, for `DataLoader(ds, batch_size=None)`: fixed-size fields and numbers as
            tensors `[B, ...]`, other kinds as lists.
        borrow: With `batched`: tensors are valid until the next batch only.
        memory_limit: Bytes, or like "8gb", for all ranks of this node together; "auto": what the window needs.
        window: Chunks open for mixing; None: a function of the data set.
        partitions: Slices of an epoch's chunks, the unit in which nodes own them.
        io: "auto", "direct" or "buffered" reading.
        rank: This process; None: from the process group or the launcher's environment.
        world_size: Number of ranks.
        nodes: Number of machines they are on.
        exchange: How nodes deal samples to ranks: "local", "uniform", a fraction, "off".
        keep: "epoch", or "run": the sticky order, whose chunks stay in memory between epochs.
        timeout: Seconds to wait for a batch before `StallError`.
        on_error: "skip": count and log samples that are corrupt, don't decode or are refused by a transform, and fill
            their places from the same batch.
        max_skipped: Samples to skip in an epoch at most.

    Raises:
        ValueError: An option is impossible; the message says what it accepts.
        NotADatasetError: There is no data set at `path`.
        MemoryLimitError: When iterating: `memory_limit` is too small for the window.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        batch_size: int,
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
        batched: bool = False,
        borrow: bool = False,
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
        given = dict(
            batch_size=batch_size, shuffle=shuffle, shuffle_seed=shuffle_seed, drop_last=drop_last, pad=pad,
            subset=subset, fields=fields, memory_limit=memory_limit, window=window, partitions=partitions, io=io,
            exchange=exchange, keep=keep, timeout=timeout, on_error=on_error, max_skipped=max_skipped,
        )  # fmt: skip
        self._batched = flag("batched", batched)
        self._borrow = flag("borrow", borrow)
        if self._borrow and not self._batched:
            raise ValueError("borrow=True needs batched=True: single samples are the caller's to keep")
        if self._batched and target_transform is not None:
            raise ValueError("target_transform is for single samples: with batched=True, transform takes the batch")
        Source.__init__(
            self, path, given, transform=transform, target_transform=target_transform, decode=decode,
            with_index=with_index, world=(rank, world_size, nodes),
        )  # fmt: skip

    def __len__(self) -> int:
        """Samples of this rank in a whole epoch; with `batched=True`, batches."""
        share = share_of(self._facts, self._options, self.world)
        return share.batches() if self._batched else share.samples()

    def __iter__(self) -> Iterator[Any]:
        refuse_workers()
        presenter = Presenter(
            self.session, TorchMaker(), decode_images=self._decode, with_index=self._with_index,
            transform=self._transform, target_transform=self._target_transform, batched=self._batched,
        )  # fmt: skip
        if self._batched:
            return _Batches(Pass(self.session, borrow=self._borrow), presenter)
        return _Samples(Pass(self.session), presenter, self.batch_size)

    def __repr__(self) -> str:
        return f"RedoxDataset({self.path!r}, batch_size={self.batch_size}, samples={self.size})"


def refuse_workers() -> None:
    """Raise if this is a DataLoader's worker process."""
    if get_worker_info() is not None:
        raise RuntimeError(
            "this version of Redox does not support DataLoader worker processes: use num_workers=0 (reading and "
            "assembling run in threads anyway), or redox.DataLoader(ds)"
        )


def _callable(option: str, value: Any) -> Any:
    if value is not None and not callable(value):
        raise ValueError(f"{option}={value!r}: expected a function or None")
    return value


def _fetched(frame: Any) -> tuple[Any, Any]:
    """Return the DataLoader's fetcher in whose frame an item is asked for, and what it fetches; or (None, None).

    Between a DataLoader and an iterator there is one frame, `fetch(self, possibly_batched_index)` of a
    `_BaseDatasetFetcher`, in every process, and with torchdata's loader too. It is the only place that shows which
    batches the loader makes.
    """
    fetcher = frame.f_locals.get("self")
    if not isinstance(fetcher, _BaseDatasetFetcher):
        return None, None
    return fetcher, frame.f_locals.get("possibly_batched_index")


class _Batches:
    """Iterates over whole batches."""

    def __init__(self, one: Pass, presenter: Presenter) -> None:
        self._pass, self._presenter = one, presenter
        self._checked = False
        self._lease: Any = None  # in borrow mode what keeps the latest batch's memory

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> Any:
        if not self._checked:
            fetcher, _ = _fetched(sys._getframe(1))
            if fetcher is not None and fetcher.auto_collation:
                raise ValueError("a data set with batched=True gives whole batches: use DataLoader(ds, batch_size=None)")
            self._checked = True
        self._lease = None
        columns = self._pass.next()
        if columns is None:
            raise StopIteration
        self._lease = columns.lease
        return self._presenter.batch(columns)


class _Samples:
    """Iterates over samples. Keeps the record of its latest batch, by which the collation finds the batch again."""

    def __init__(self, one: Pass, presenter: Presenter, batch_size: int) -> None:
        self._pass, self._presenter, self._batch_size = one, presenter, batch_size
        self._rows: Iterator[Any] = iter(())
        self._rest: Iterator[Any] = self._rows  # as long as what is left of the batch
        self._record: Record | None = None
        self._checked = False

    def __iter__(self) -> _Samples:
        return self

    def __next__(self) -> Any:
        if not self._checked:
            self._check(*_fetched(sys._getframe(1)))
        for sample in self._rows:
            return sample
        self._rows, self._record = iter(()), None  # before the next batch, so that this one's memory is free for it
        columns = self._pass.next()
        if columns is None:
            raise StopIteration
        self._open(columns)
        return next(self._rows)

    def _open(self, columns: Columns) -> None:
        progress = self._pass.progress
        assert progress is not None
        if self._presenter.plain:
            samples, self._record = open_samples(self._presenter, columns)
            self._rows = self._rest = iter(samples)
        else:
            self._rest = iter(range(columns.n))
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


def _left(samples: weakref.ref[_Samples]) -> int:
    """Return how many samples of an iterator's latest batch were not handed out yet."""
    iterator = samples()
    return 0 if iterator is None else length_hint(iterator._rest)
