"""What the PyTorch data sets share: a data set's facts, its options, and the session of this process."""

from __future__ import annotations

import itertools
import os
from collections import defaultdict
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from redox.attached import AttachedSession, Crew, engine_for
from redox.facts import Facts
from redox.options import Options, flag, whole
from redox.present import Presenter, check_with_index
from redox.session import Session
from redox.state import parse_state
from redox.subset import Subset
from redox.world import World

if TYPE_CHECKING:
    from redox.values import Maker

__all__ = ["OPTIONS", "Source"]

OPTIONS = frozenset(field.name for field in fields(Options))
_ordinals: defaultdict[str, itertools.count[int]] = defaultdict(itertools.count)


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
        self._original: Any = None  # the object whose session this one shares
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
        self._session_of = 0  # the process that it belongs to
        self._ordinal = next(_ordinals[self._facts.fingerprint])  # tells data sets of one program apart

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
        if self._original is not None:
            return self._original.session  # type: ignore[no-any-return]
        if self._session is None or self._session_of != os.getpid():
            before, self._session = self._session, self._new_session()
            self._session_of = os.getpid()
            if before is not None:  # of the process that this one was forked from
                self._session.cursor = before.cursor
        return self._session

    def _new_session(self) -> Session:
        crew = Crew.here()
        if not crew.working and self.world.ranks_here == 1:
            return Session(self._facts, self._options, self.world)
        name = engine_for(self.world, crew, self._facts.fingerprint, self._ordinal)
        return AttachedSession(self._facts, self._options, self.world, crew, name)

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

    def presenter(self, maker: Maker, *, batched: bool = False) -> Presenter:
        """Return how the batches of this data set are shown."""
        return Presenter(
            self.session, maker, decode_images=self._decode, with_index=self._with_index, transform=self._transform,
            target_transform=self._target_transform, batched=batched,
        )  # fmt: skip

    def __getstate__(self) -> dict[str, Any]:
        self.world  # noqa: B018 - found out where the object was made, not where it is unpickled
        where = self._session.cursor if self._session is not None else None
        return {**self.__dict__, "_session": None, "_where": where}

    def __setstate__(self, state: dict[str, Any]) -> None:
        where = state.pop("_where")
        self.__dict__.update(state)
        if where is not None:
            self.session.cursor = where


def _callable(option: str, value: Any) -> Any:
    if value is not None and not callable(value):
        raise ValueError(f"{option}={value!r}: expected a function or None")
    return value
