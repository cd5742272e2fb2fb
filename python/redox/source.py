"""What the PyTorch data sets share: a data set's facts, its options, and the session of this process."""

from __future__ import annotations

import copy
import itertools
import os
import weakref
from collections import defaultdict
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from redox._library import inherited
from redox.attached import AttachedSession, status_of, tell
from redox.client import farewell, seen
from redox.crew import Crew, engine_for
from redox.errors import StateError
from redox.facts import Facts
from redox.meeting import Meeting, Place, exchanging
from redox.options import Options, flag, whole
from redox.part import Part, refuse_part
from redox.present import Presenter, check_with_index
from redox.session import Session, share_of
from redox.state import parse_state
from redox.subset import Subset
from redox.world import World

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redox.info import Info
    from redox.state import Cursor, Share
    from redox.values import Maker

__all__ = ["OPTIONS", "Source"]

OPTIONS = frozenset(field.name for field in fields(Options))
_numbers = itertools.count()
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
        world: tuple[int | None, int | None, int | Sequence[int] | None],
        exactly: bool = False,
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
            raise ValueError(
                "target_transform: the samples have no second value; use transform, which takes the sample"
            )
        self._asked = world
        if world != (None, None, None):
            World.resolve(*world)  # arguments are checked when they are given
        self._found: list[World] = []  # which rank this is, as it was found out last; outlives this object
        self._found_by = 0  # the process that did
        self._place: Place | None = None  # where its nodes meet
        self._session: Session | None = None
        self._session_of = (0, False)  # the process that it belongs to, and whether that is a worker
        self._where: Cursor | None = None  # of the object that this one was unpickled from
        self._copies = 0
        # Tells data sets of one program apart, on all ranks alike. Those that one rank may well make alone (to look at
        # samples, to evaluate) are counted apart.
        series = "exact" if exactly else "alone" if world[1] == 1 else "plan"
        named = f"{self._facts.fingerprint} {series}"
        self._name = named, next(_ordinals[named])
        self._nth = next(_numbers)  # data set of the program
        end = weakref.finalize(self, _farewell, os.getpid(), self._found, self._asked, self._name)
        end.atexit = False

    @property
    def path(self) -> str:
        """Where the data set is, absolute."""
        return self._facts.path

    @property
    def size(self) -> int:
        """Samples of the data set, whatever the subset."""
        return self._facts.samples

    @property
    def info(self) -> Info:
        """What is in the data set, and what it will take to load it."""
        from redox.info import Info  # as late as the library is loaded

        return Info.of(self.path)

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
        """Which rank this is, of how many; found out anew until the first iteration, and then kept.

        A process group may be initialised after `len()` was asked for, and in a process that got this object as an
        argument (`torch.multiprocessing.spawn`); workers are told by their trainer.
        """
        if self._original is not None:
            return self._original.world  # type: ignore[no-any-return]
        here = os.getpid()
        if not self._found or ((self._session is None or self._found_by != here) and not Crew.here().working):
            self._found[:], self._found_by = [World.resolve(*self._asked)], here
            self._place = Place.here() if exchanging(self._options, self._found[0]) else None
        return self._found[0]

    @property
    def share(self) -> Share:
        """How an epoch is cut for this rank."""
        return share_of(self._facts, self._options, self.world)

    @property
    def session(self) -> Session:
        """What this process holds for this object; made at the first use."""
        if self._original is not None:
            return self._original.session  # type: ignore[no-any-return]
        crew = Crew.here(self._copies)
        here = os.getpid(), crew.working
        if self._session is None or self._session_of != here:
            where = self._where if self._session is None else self._session.cursor  # forked
            self._session, self._session_of = self._new_session(crew), here
            if where is not None:
                self._session.cursor = where
        return self._session

    def _new_session(self, crew: Crew) -> Session:
        world = self.world
        # An engine process and a process that loads by itself look for the other nodes' likes: all nodes do the same.
        most = world.ranks_here if self._meeting(engine=False) is None else max(world.ranks)
        if not crew.working and most == 1 and not inherited():
            return Session(self._facts, self._options, world, self._meeting(engine=False))
        return self._attached(crew, self._engine())

    def _attached(self, crew: Crew, name: bytes) -> AttachedSession:
        return AttachedSession(self._facts, self._options, self.world, crew, name, self._meeting(engine=True))

    def _meeting(self, *, engine: bool) -> Meeting | None:
        """Return how this node finds those that it exchanges samples with."""
        if not exchanging(self._options, self.world):
            return None
        return Meeting(self._place, self.world, self._name, self._nth, engine=engine)

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be this epoch; without it every iteration is the next one.

        After `load_state_dict` with a state of the same epoch the position in it is kept.
        """
        self.session.set_epoch(whole("epoch", epoch, 0, (1 << 63) - 1))
        self._tell()

    def stats(self) -> dict[str, Any]:
        """Return the counters `{"epoch": {...}, "total": {...}}` of this rank and its node."""
        status = self._workers(anew=False)
        return self.session.stats() if status is None else dict(status["stats"])

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
        elif isinstance(self.session, AttachedSession) and self.session.crew.working:
            return self.session.part_state()
        status = self._workers()
        if status is None:
            return self.session.state(batches)
        if batches is None:
            raise StateError(
                "with DataLoader workers the data set can't know what the training loop has received: use "
                "redox.DataLoader, or state_dict(batches=k) after k batches of the epoch"
            )
        return self.session.state_after(status["epoch"], status["start"], batches)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next iteration go on where this state was taken, on any number of ranks, with any batch size.

        To be called on every rank, with any rank's state: one that is left out begins the epoch anew, and the samples
        that it then gets are not those that the others leave to it.

        Raises:
            StateError: It is of another data set or order, or of a newer version.
        """
        epoch, position = parse_state(state, self._facts.fingerprint)
        session = self.session
        if isinstance(session, AttachedSession) and session.crew.working:
            part = Part.parse(state, session.crew)
            if part is not None:
                session.expect(state)
                session.load_part(epoch, part)
                return
        else:
            refuse_part(state)
        session.expect(state)
        self.session.load(epoch, position)
        self._tell()

    def _tell(self) -> None:
        """Let persistent workers know what was said about epochs."""
        session = self.session
        if not isinstance(session, AttachedSession):
            name = self._engine()
            session = self._attached(session.crew, name)
            session.cursor = self.session.cursor
        self.session.told = tell(session, start=session.name in seen)

    def _engine(self) -> bytes:
        """Return the name of the engine process for this data set, if one serves it."""
        return engine_for(self.world, Crew.here(), *self._name)

    def engine_status(self) -> dict[str, Any] | None:
        """Return what the engine of this data set's workers says; None if there is no engine."""
        status = status_of(self._engine(), self.world.rank)
        if status is not None:
            self.session.learn(status["state"])
        return status

    def _workers(self, *, anew: bool = True) -> dict[str, Any] | None:
        """Return what the engine of this data set's workers says; None if this process's own iterations count.

        Args:
            anew: Only if they have begun one since the user last said something about epochs.
        """
        session = self.session
        status = None if session.crew.working else self.engine_status()
        if status is None:
            return None
        latest, begun = session.latest, (status["epoch"], status["start"])
        if isinstance(session, AttachedSession) and latest is not None and (latest.epoch, latest.start) == begun:
            return None  # this process's own
        if status["passes"] < session.told:
            session.told = 0  # another engine, in place of one that died
        began = status["passes"] > (session.told if anew else 0)
        return status if began and status["serial"] >= session.cursor.serial else None

    def catch_up(self) -> None:
        """Let this process's next iteration follow those that DataLoader workers have made since its last."""
        session = self.session
        if isinstance(session, AttachedSession):
            return  # the engine itself counts
        status = self.engine_status()
        if status is not None and status["passes"] and status["serial"] >= session.cursor.serial:
            session.load(status["next_epoch"], status["next_position"])

    def presenter(self, maker: Maker, *, batched: bool = False) -> Presenter:
        """Return how the batches of this data set are shown."""
        return Presenter(
            self.session, maker, decode_images=self._decode, with_index=self._with_index, transform=self._transform,
            target_transform=self._target_transform, batched=batched,
        )  # fmt: skip

    def __getstate__(self) -> dict[str, Any]:
        self.world  # noqa: B018 - found out where the object was made, not where it is unpickled
        where = copy.copy(self._session.cursor if self._session is not None else self._where)
        self._copies += 1
        name = self._engine()
        return {**self.__dict__, "_session": None, "_where": where, "_seen": (name, seen.get(name))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Workers that are not forked learn here what forked ones inherit: which epoch an engine that died had come to.
        name, epoch = state.pop("_seen")
        if epoch is not None:
            seen.setdefault(name, epoch)
        self.__dict__.update(state)


def _farewell(pid: int, found: list[World], asked: tuple[Any, Any, Any], name: tuple[str, int]) -> None:
    """Say that nobody needs the engine of a data set object that is gone, in the process that made it."""
    if pid != os.getpid():
        return
    try:
        world = found[0] if found else World.resolve(*asked)  # only its forked workers may have asked
    except ValueError:
        return
    farewell(engine_for(world, Crew(pid), *name), world.rank)


def _callable(option: str, value: Any) -> Any:
    if value is not None and not callable(value):
        raise ValueError(f"{option}={value!r}: expected a function or None")
    return value
