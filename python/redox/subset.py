"""Which samples of a data set take part: a range, fractions of it, or a list of stored numbers."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Subset"]


@dataclass(frozen=True, eq=False)
class Subset:
    """A chosen set of stored numbers.

    Attributes:
        size: How many they are.
        bounds: (lo, hi) if they are all from lo to hi-1.
        numbers: Otherwise all of them, int64 `[size]`, ascending, each once.
    """

    size: int
    bounds: tuple[int, int] | None = None
    numbers: np.ndarray | None = None

    @classmethod
    def parse(cls, value: Any, samples: int) -> Subset | None:
        """Return the subset that an option stands for; None for all samples.

        Args:
            value: None, a pair of fractions (two floats, 0 to 1), a pair of stored numbers (two ints, lo < hi), or an
                integer array of stored numbers, each once, in any order.
            samples: Samples of the data set.

        Raises:
            ValueError: It is none of them, empty, or not inside the data set.
        """
        if value is None:
            return None
        if isinstance(value, tuple) and len(value) == 2:
            lo, hi = _pair(value, samples)
            return cls(hi - lo, (lo, hi))
        numbers = np.asarray(value)
        if numbers.ndim != 1 or not np.issubdtype(numbers.dtype, np.integer):
            raise _refused(value)
        if numbers.size == 0:
            raise ValueError("subset: the array is empty")
        ascending = np.sort(numbers.astype(np.int64))
        if ascending[0] < 0 or ascending[-1] >= samples:
            raise ValueError(
                f"subset: stored numbers {ascending[0]} to {ascending[-1]}, but the data set has 0 to {samples - 1}"
            )
        repeated = ascending[1:][ascending[1:] == ascending[:-1]]
        if repeated.size:
            raise ValueError(f"subset: {repeated.size} stored numbers come twice, the first is {repeated[0]}")
        return cls(int(ascending.size), None, ascending)

    def number(self, place: int) -> int:
        """Return the stored number at a place, 0 … size-1, in ascending order."""
        if self.bounds is not None:
            return self.bounds[0] + place
        assert self.numbers is not None
        return int(self.numbers[place])

    def digest(self) -> str:
        """Return a hash of the set, for telling two subsets apart."""
        content = repr(self.bounds).encode() if self.numbers is None else self.numbers.tobytes()
        return hashlib.sha256(content).hexdigest()[:16]


def _pair(value: tuple[Any, Any], samples: int) -> tuple[int, int]:
    if all(isinstance(v, (float, np.floating)) for v in value):
        low, high = float(value[0]), float(value[1])
        if not 0 <= low < high <= 1:
            raise ValueError(f"subset={value!r}: expected fractions from 0.0 to 1.0, the first one smaller")
        lo, hi = math.floor(low * samples + 0.5), math.floor(high * samples + 0.5)  # as the core rounds
        if lo >= hi:
            raise ValueError(f"subset={value!r}: that is no sample of {samples}")
        return lo, hi
    if all(isinstance(v, (int, np.integer)) and not isinstance(v, bool) for v in value):
        lo, hi = int(value[0]), int(value[1])
        if not 0 <= lo < hi <= samples:
            raise ValueError(f"subset={value!r}: expected 0 <= lo < hi <= {samples}, the data set's samples")
        return lo, hi
    raise _refused(value)


def _refused(value: Any) -> ValueError:
    shown = repr(value)
    return ValueError(
        f"subset={shown if len(shown) < 80 else shown[:77] + '...'}: expected (lo, hi) as fractions (two floats) or as "
        "stored numbers (two ints), or an integer array of stored numbers"
    )
