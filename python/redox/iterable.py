"""`redox.RedoxDataset`: a data set as PyTorch's `IterableDataset`, in the plan's order."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

try:
    from torch.utils.data import IterableDataset
except ImportError:
    raise ImportError(
        "redox.RedoxDataset, MapDataset and DataLoader need PyTorch: pip install torch, or read without it by "
        "redox.open(path).batches(...)"
    ) from None

from redox.dealing import refuse_dealers
from redox.iterate import BatchIterator, CollatedIterator, SampleIterator
from redox.options import flag
from redox.source import OPTIONS, Source
from redox.values import TorchMaker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["RedoxDataset"]


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
        given = {name: value for name, value in locals().items() if name in OPTIONS}
        self._collated = False  # whether batches are collated from samples
        self._collate: Callable[[list[Any]], Any] | None = None
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

    @property
    def batched(self) -> bool:
        """Whether iterating gives whole batches."""
        return self._batched

    def __len__(self) -> int:
        """Samples of this rank in a whole epoch; with `batched=True`, batches."""
        return self.share.batches() if self._batched else self.share.samples()

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be this epoch; without it every iteration is the next one.

        After `load_state_dict` with a state of the same epoch the position in it is kept.
        """
        refuse_dealers(sys._getframe(1))  # those that read in workers call this before
        super().set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        refuse_dealers(sys._getframe(1))
        session, maker = self.session, TorchMaker()
        self.catch_up()
        if self._batched and not self._collated:
            presenter = self.presenter(maker, batched=True)
            return BatchIterator(session.new_pass(borrow=self._borrow), presenter)
        presenter = self.presenter(maker)
        if self._collated:
            return CollatedIterator(session.new_pass(), presenter, self._collate)
        return SampleIterator(session.new_pass(), presenter, self.batch_size)

    def collated(self, collate: Callable[[list[Any]], Any] | None) -> RedoxDataset:
        """Return this data set as one that gives what a DataLoader with this `collate_fn` would.

        It has the same session: epochs, position and counters are those of this object.
        """
        twin = object.__new__(type(self))  # not copy.copy: that finds out the rank, and it may be too early for it
        twin.__dict__.update(self.__dict__, _original=self._original or self, _session=None)
        twin._batched = twin._collated = True
        twin._collate = collate
        return twin

    def __repr__(self) -> str:
        return f"RedoxDataset({self.path!r}, batch_size={self.batch_size}, samples={self.size})"
