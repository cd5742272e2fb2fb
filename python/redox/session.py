"""One data set in this process: its native handles, and the passes that are made over it.

A *pass* is one iteration over (the rest of) one epoch. Passes one after the other use the same native loader, so that
what it holds in memory serves the next epoch; passes at the same time get a loader each, on one engine.

Nothing here knows what a batch is turned into; that begins with the `Columns` that a pass gives.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import json
import logging
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

from redox import _native
from redox.columns import Columns, Reader, fixed_dtype
from redox.crew import Crew
from redox.errors import CorruptError, MemoryLimitError, StateError
from redox.facts import Facts
from redox.options import Options
from redox.passes import Pass, Progress
from redox.state import Cursor, Share
from redox.world import World

if TYPE_CHECKING:
    from redox.meeting import Meeting

__all__ = ["STATE", "Loader", "Opened", "Session", "added", "share_of"]

_log = logging.getLogger("redox")

_REST_S = 10.0  # at the end of the program, for nodes that are slower
# Batches assembled ahead: one in the user's hands, one on the way to them, one being filled. Small ones are done sooner
# than a thread is woken, so more of them; large ones would push each other out of the processor's caches.
_SLOTS, _SLOTS_OF_SMALL, _SMALL = 3, 5, 2 << 20
_LARGE = 32 << 10  # bytes of a sample, in the mean, from which on a copy costs more than two calls


class Opened:
    """An open native data set; closed with its last user."""

    def __init__(self, path: str) -> None:
        self.handle, self.pid = _native.dataset_open(path), os.getpid()
        self.close = weakref.finalize(self, _close_dataset, self.handle, os.getpid())
        self.close.atexit = False


def _close_dataset(handle: int, pid: int) -> None:
    if _native.owns(pid):
        _native.dataset_close(handle)


class _Handle:
    """A native loader; closed with its last user, borrowed memory included."""

    def __init__(self, opened: Opened, options: dict[str, Any]) -> None:
        self._opened = opened  # must not be closed before
        self.number = _native.loader_new(opened.handle, options)
        weakref.finalize(self, _native.loader_close, self.number, os.getpid()).atexit = False


class _Mesh:
    """This node's connections to the others; closed with its last user."""

    def __init__(self, opened: Opened, options: dict[str, Any]) -> None:
        self.number = _native.mesh_new(opened.handle, options)
        weakref.finalize(self, _native.mesh_close, self.number, os.getpid()).atexit = False


class Loader:
    """A native loader and its reader. Used by one pass at a time."""

    def __init__(self, opened: Opened, options: dict[str, Any], fields: Any, *, straight: bool) -> None:
        handle = _Handle(opened, options)
        self.handle = handle.number
        self.reader = Reader(fields, options["batch_size"], owner=handle, straight=straight)


class Session:
    """What this process holds for one data set object.

    Args:
        facts: Of the data set.
        options: Of loading.
        world: Which rank this is.
        meeting: How its node finds the others; None where they exchange nothing.
    """

    def __init__(self, facts: Facts, options: Options, world: World, meeting: Meeting | None = None) -> None:
        self.facts, self.options, self.world, self.meeting = facts, options, world, meeting
        self.fields = facts.choose(options.fields if options.fields is None else tuple(options.fields))
        self.share = share_of(facts, options, world)
        self.cursor = Cursor(self.share.size)
        self.crew = Crew.here()
        self.latest: Progress | None = None  # of the pass that began last: it is the state
        self.skipped = [0, 0]  # by Python, in the epoch and in all: samples that did not decode or that were refused
        self._lock = threading.Lock()
        self._opened: Opened | None = None
        self._loaders: list[Loader] = []
        self._free: list[Loader] = []
        self._busy: Loader | None = None  # of the pass that began last
        self._subset = 0
        self._mesh: _Mesh | None = None
        self._unchanging: dict[str, Any] | None = None
        self.told = 0  # passes that the workers' engine had seen when the user last said something about epochs

    @property
    def opened(self) -> Opened:
        """The native data set, opened by the first call."""
        _native.load()  # in a forked child this is what raises, before a handle of the parent is used
        if self._opened is None:
            self._opened = Opened(self.facts.path)
        return self._opened

    def take(self) -> Loader:
        """Return a loader that no live pass uses."""
        try:
            return self._free.pop(0)
        except IndexError:
            pass
        with self._lock:
            loader = self._make()
            self._loaders.append(loader)
            if self.meeting is not None and len(self._loaders) == 1:
                _exchanging.add(self)
            return loader

    def give_back(self, loader: Loader) -> None:
        """Let another pass have this loader. Without a lock: a collected iterator comes here, at any moment."""
        self._free.append(loader)

    def _make(self) -> Loader:
        opened = self.opened
        straight = self._straight()
        options = self.options.native(self.world, prefetch=0 if straight else self._slots())
        subset = self.options.subset
        if subset is not None and subset.numbers is not None:
            if not self._subset:
                array = (ctypes.c_int64 * subset.size).from_buffer_copy(subset.numbers.tobytes())
                self._subset = _native.subset_new(opened.handle, array)
            options["subset_handle"] = self._subset
        if self.meeting is not None:
            if self._mesh is None:
                self._mesh = _Mesh(opened, {**options, **self.meeting.options()})
            options["mesh"] = self._mesh.number
        if self._loaders:
            try:
                shared = {**options, "share": self._loaders[0].handle}
                return Loader(opened, shared, self.fields, straight=straight)
            except MemoryLimitError:
                if self.options.memory_limit != "auto":
                    raise
        return Loader(opened, options, self.fields, straight=straight)

    def _straight(self) -> bool:
        """Whether batches are put straight into Python's byte strings, without a slot between.

        That saves a copy of large ones, which are as much work to take out of a slot as to gather. Where they are to be
        decoded before, threads of the library do it ahead of time, into slots.
        """
        facts = self.facts
        kinds = [field.kind for field in facts.fields if fixed_dtype(field) is None]
        large = facts.bytes >= _LARGE * facts.samples and facts.stored >= 0.9 * facts.bytes
        return large and len(self.fields) == len(facts.fields) and bool(kinds) and "array" not in kinds

    def _slots(self) -> int:
        size = self.options.batch_size * self.facts.bytes / max(1, self.facts.samples)
        return _SLOTS_OF_SMALL if size <= _SMALL else _SLOTS

    def meet(self) -> None:
        """Connect this node with those that are not connected with it; before the first pass, wait for all of them."""
        if self.meeting is None or self._mesh is None:
            return
        mesh = self._mesh.number
        card = _native.mesh_card(mesh)
        if not json.loads(card)["complete"]:
            self.meeting.hold(card, functools.partial(_native.mesh_meet, mesh), self.options.timeout)

    def rest(self) -> None:
        """At the end of the program: let slower nodes get what this one has for them."""
        if self._opened is not None and _native.owns(self._opened.pid):
            for loader in self._loaders:
                _native.loader_rest(loader.handle, _REST_S)

    def state(self, batches: int | None = None) -> dict[str, Any]:
        """Return the state after what was delivered, or after so many batches of the epoch."""
        epoch, position = self._progress(batches)
        return {**self.template(), "epoch": epoch, "position": position}

    def template(self) -> dict[str, Any]:
        """Return a state with everything in it that does not change."""
        if self._unchanging is None:
            if not self._loaders:
                self.give_back(self.take())
            self.learn(_native.state(self._loaders[0].handle))
        assert self._unchanging is not None
        return self._unchanging

    def learn(self, state: dict[str, Any]) -> None:
        """Take from any state what does not change: who has workers need not load anything for it."""
        if self._unchanging is None:
            self._unchanging = {name: state[name] for name in STATE if name in state}

    def _progress(self, batches: int | None) -> tuple[int, int]:
        latest = self.latest
        if batches is None:
            return self.cursor.peek() if latest is None else (latest.epoch, latest.position())
        return self._after(*(self.cursor.peek() if latest is None else (latest.epoch, latest.start)), batches)

    def state_after(self, epoch: int, start: int, batches: int) -> dict[str, Any]:
        """Return the state after so many batches of an epoch, counted from its beginning, that went on at `start`."""
        epoch, position = self._after(epoch, start, batches)
        return {**self.template(), "epoch": epoch, "position": position}

    def _after(self, epoch: int, start: int, batches: int) -> tuple[int, int]:
        done = self.share.before(start)
        if batches < done:
            raise StateError(
                f"batches={batches}: this epoch went on from position {start}, after its first {done} batches; count "
                "the batches from the beginning of the epoch"
            )
        return epoch, self.share.after(start, batches - done)

    def new_pass(self, *, borrow: bool = False) -> Pass:
        """Return a new pass; see `Pass`."""
        return Pass(self, borrow=borrow)

    def origin(self, numbers: list[int]) -> tuple[list[int], list[str]]:
        """Return the source numbers and keys of stored numbers."""
        return _native.origin(self.opened.handle, numbers)

    def sources(self, numbers: list[int]) -> list[int]:
        """Return the source numbers of stored numbers."""
        return _native.sources(self.opened.handle, numbers)

    def begin(self, progress: Progress, loader: Loader) -> None:
        """Take note of a pass that begins."""
        self.latest, self._busy = progress, loader
        self.skipped[0] = 0

    def chosen(self, columns: Columns) -> Columns:
        """Return samples that were read with all their fields, with those fields that are wanted."""
        by_name = {column.field.name: column for column in columns.columns}
        columns.columns = [by_name[field.name] for field in self.fields]
        return columns

    def note_skipped(self, number: int, error: Exception) -> None:
        """Count and log a sample that is left out.

        Args:
            number: Its stored number; -1 - i for padding.
            error: What is wrong with it.

        Raises:
            CorruptError: It is one more than `max_skipped` in this epoch.
        """
        skipped = self.count_skipped()
        number = number if number >= 0 else -1 - number
        key = self.origin([number])[1][0]
        shard, chunk = self.facts.chunk_of(number)
        where = f"sample {number} (key {key}) of shard {shard}, chunk {chunk} of {self.facts.path}"
        _log.warning("skipped %s: %s", where, str(error) or type(error).__name__)
        if skipped > self.options.max_skipped:
            raise CorruptError(
                f"more than max_skipped={self.options.max_skipped} samples were skipped in one epoch; "
                f"the last is {where}",
                path=self.facts.path, shard=shard, chunk=chunk, sample=number,
            ) from error  # fmt: skip

    def count_skipped(self) -> int:
        """Count one more sample that is left out, and return how many there are in this epoch."""
        self.skipped[0] += 1
        self.skipped[1] += 1
        return self.skipped[0]

    def load(self, epoch: int, position: int) -> None:
        """Let the next pass go on from here."""
        self.cursor.load(epoch, position)
        self.latest = None

    def expect(self, state: dict[str, Any]) -> None:
        """Raise StateError unless a state is one of this order."""
        loader = self.take()
        try:
            _native.restore(loader.handle, state)  # every pass says again where it begins
        finally:
            self.give_back(loader)

    def set_epoch(self, epoch: int) -> None:
        """Let the next pass be this epoch."""
        self.cursor.set_epoch(epoch)
        self.latest = None

    def stats(self) -> dict[str, Any]:
        """Return the counters of this rank, for the latest epoch and in all."""
        if not self._loaders:
            self.give_back(self.take())
        every = [_native.stats(loader.handle) for loader in self._loaders]
        last = self._loaders.index(self._busy) if self._busy is not None else 0
        merged = {**every[last], "total": added([one["total"] for one in every])}
        for name, skipped in zip(("epoch", "total"), self.skipped, strict=True):
            merged[name] = {**merged[name], "skipped": merged[name].get("skipped", 0) + skipped}
        return merged


_exchanging: weakref.WeakSet[Session] = weakref.WeakSet()


@atexit.register
def _rest() -> None:
    for session in list(_exchanging):
        session.rest()


STATE = (
    "version",
    "dataset",
    "seed",
    "shuffle",
    "epoch",
    "position",
    "partitions",
    "window",
    "subset",
    "keep",
    "plan_hash",
)


def share_of(facts: Facts, options: Options, world: World) -> Share:
    """Return how an epoch is cut for this rank."""
    size = facts.samples if options.subset is None else options.subset.size
    return Share(size, options.batch_size, world.size, world.rank, options.drop_last, options.pad is not False)


_LARGEST = ("resident_bytes", "resident_peak")


def added(every: list[dict[str, Any]]) -> dict[str, Any]:
    """Add up counters; of what several loaders share on one engine, take the largest."""
    total = dict(every[0])
    for one in every[1:]:
        for name, value in one.items():
            if isinstance(value, (int, float)) and isinstance(total.get(name), (int, float)):
                total[name] = max(total[name], value) if name in _LARGEST else total[name] + value
    return total
