"""The options of loading, checked when they are given."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any

from redox.sizes import parse_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redox.subset import Subset
    from redox.world import World

__all__ = ["Options", "choice", "flag", "whole"]


@dataclass(frozen=True)
class Options:
    """What decides order, memory and errors of a run; see `redox.RedoxDataset` for what each one means.

    Raises:
        ValueError: An option is impossible. The message names it, what it got and what it accepts.
    """

    batch_size: int
    shuffle: bool = True
    shuffle_seed: int = 0
    drop_last: bool = False
    pad: bool | str | None = None
    fields: Sequence[str] | None = None
    memory_limit: int | str = "auto"
    window: int | None = None
    partitions: int = 64
    io: str = "auto"
    exchange: str | float = "local"
    keep: str = "epoch"
    timeout: float = 120.0
    on_error: str = "raise"
    max_skipped: int = 1000
    subset: Subset | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)  # frozen: this only brings a value into its one form

        put("batch_size", whole("batch_size", self.batch_size, 1, 1 << 24))
        put("shuffle", flag("shuffle", self.shuffle))
        put("shuffle_seed", whole("shuffle_seed", self.shuffle_seed, 0, (1 << 64) - 1))
        put("drop_last", flag("drop_last", self.drop_last))
        if self.pad is not None and not (isinstance(self.pad, str) and self.pad == "mark"):
            put("pad", flag("pad", self.pad, 'None, True, False or "mark"'))
        if not (isinstance(self.memory_limit, str) and self.memory_limit == "auto"):
            put("memory_limit", parse_size(self.memory_limit, "memory_limit", instead='"auto"'))
        if self.window is not None:
            put("window", whole("window", self.window, 1, (1 << 31) - 1))
        put("partitions", whole("partitions", self.partitions, 1, (1 << 16) - 1))
        choice("io", self.io, "auto", "direct", "buffered")
        put("exchange", _exchange(self.exchange))
        choice("keep", self.keep, "epoch", "run")
        put("timeout", _seconds("timeout", self.timeout))
        choice("on_error", self.on_error, "raise", "skip")
        put("max_skipped", whole("max_skipped", self.max_skipped, 0, (1 << 63) - 1))
        if self.fields is not None:
            put("fields", _names(self.fields))

    def native(self, world: World, *, prefetch: int = 0) -> dict[str, Any]:
        """Return the options as the library takes them, for one rank.

        Args:
            world: Whose options.
            prefetch: Batches that the library assembles ahead in its own memory.
        """
        options: dict[str, Any] = {
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "shuffle_seed": self.shuffle_seed,
            "drop_last": self.drop_last,
            "pad": self.pad,
            "memory_limit": self.memory_limit,
            "partitions": self.partitions,
            "io": self.io,
            "exchange": self.exchange,
            "keep": self.keep,
            "timeout": self.timeout,
            "on_error": self.on_error,
            "max_skipped": self.max_skipped,
            "rank": world.rank,
            "world_size": world.size,
            "nodes": list(world.uneven) or world.nodes,
            "prefetch": prefetch,
        }
        if self.window is not None:
            options["window"] = self.window
        if self.fields is not None:
            options["fields"] = list(self.fields)
        if self.subset is not None and self.subset.bounds is not None:
            options["subset"] = list(self.subset.bounds)
        return options


def whole(option: str, value: Any, low: int, high: int) -> int:
    """Return an option that is a whole number from `low` to `high`."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or not low <= number <= high:
        raise ValueError(f"{option}={value!r}: expected a whole number from {low} to {high}")
    return number


def flag(option: str, value: Any, accepted: str = "True or False") -> bool:
    """Return an option that is true or false; numbers are not."""
    if isinstance(value, bool):
        return value
    if type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    raise ValueError(f"{option}={value!r}: expected {accepted}")


def choice(option: str, value: Any, *accepted: str) -> str:
    """Return an option that is one of a few words."""
    if not isinstance(value, str) or value not in accepted:
        raise ValueError(f"{option}={value!r}: expected {' or '.join(map(repr, accepted))}")
    return value


def _seconds(option: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) <= 1e9:
        raise ValueError(f"{option}={value!r}: expected seconds, more than 0 and at most 1e9")
    return float(value)


def _exchange(value: Any) -> str | float:
    if isinstance(value, str) and value in ("local", "uniform", "off"):
        return value
    if not isinstance(value, bool) and isinstance(value, Real) and 0 <= float(value) <= 1:
        return float(value)
    raise ValueError(f"exchange={value!r}: expected 'local', 'uniform', 'off' or a fraction from 0 to 1")


def _names(value: Any) -> tuple[str, ...]:
    try:
        names = () if isinstance(value, str) else tuple(value)
    except TypeError:
        names = ()
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise ValueError(f"fields={value!r}: expected a list of at least one field name, each once")
    return names
