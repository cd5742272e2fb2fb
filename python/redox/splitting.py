"""`redox.split`: parts of a data set that do not overlap, for training and validation."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .info import Info
from .settings import is_int

Subset = tuple[int, int] | npt.NDArray[np.int64]

_ROUNDING = 1e-6


def split(
    path: str | os.PathLike[str], sizes: Sequence[float] | Sequence[int], *, seed: int | None = None
) -> list[Subset]:
    """Cuts a data set into subsets for `RedoxDataset(subset=…)`.

    Where packing shuffled, the parts are runs of stored numbers: random samples all the same, and each chunk is read by
    one part only (but for the one at each cut). Otherwise neighbours belong together, and the split has to be random.

    Args:
        path: the data set.
        sizes: a fraction of the data set for each part (together at most 1), or a number of samples for each.
        seed: makes the split random, always the same for the same seed.

    Returns:
        For each part (first, end) stored numbers, or, with a seed, its stored numbers in ascending order.

    Raises:
        ValueError: sizes that are none, too large or so small that a part is empty; no seed where one is needed.
    """
    info = Info.of(path)
    ends = _ends(list(sizes), info.samples)
    bounds = list(itertools.pairwise([0, *ends]))
    for size, (first, end) in zip(sizes, bounds, strict=True):
        if first == end:
            raise ValueError(f"sizes={list(sizes)}: {size} of {info.samples} samples is none")
    if seed is None:
        if not info.shuffled and len(bounds) > 1:
            raise ValueError(
                f"seed=None: {info.path} was packed with shuffle=False, so that runs of it are not random samples;"
                " pass a seed for a random split"
            )
        return list(bounds)
    if not is_int(seed) or seed < 0:
        raise ValueError(f"seed={seed!r}: expected an integer from 0, or None")
    numbers = np.random.Generator(np.random.PCG64(seed)).permutation(info.samples)
    return [np.sort(numbers[first:end]) for first, end in bounds]


def _ends(sizes: list[float] | list[int], samples: int) -> list[int]:
    """Where each part ends."""
    if not sizes or any(isinstance(s, bool) or not isinstance(s, (int, float, np.integer, np.floating)) for s in sizes):
        raise ValueError(f"sizes={sizes!r}: expected a list of fractions or of numbers of samples")
    if not all(s >= 0 for s in sizes):  # NaN neither
        raise ValueError(f"sizes={sizes!r}: expected nothing below 0")
    together = sum(sizes)
    if all(is_int(s) for s in sizes) and (together > 1 or len(sizes) == 1):
        if together > samples:
            raise ValueError(f"sizes={sizes!r}: {together} samples asked for, the data set has {samples}")
        return [int(end) for end in itertools.accumulate(sizes)]
    if together > 1 + _ROUNDING:
        raise ValueError(f"sizes={sizes!r}: fractions together make {together:g}, more than 1")
    return [min(samples, round(end * samples)) for end in itertools.accumulate(sizes)]
