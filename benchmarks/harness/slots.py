"""File redirection as the paper's artifact has it (MemHub), simulated: how often a chunk is opened in an epoch.

The files are shuffled once and cut into chunks; some consecutive chunks share the slots of one chunk in memory. A
request for a file is answered with the file that its slot holds. Where the slot is empty, a chunk of the group that
still has its file is opened, and all empty slots that it can fill are filled: a few of its files, as the rest are full.
"""

from __future__ import annotations

import math

import numpy as np


def opens(chunks: int, files: int, memory: float, seed: int = 0) -> tuple[float, float]:
    """Return how often a chunk is opened in an epoch, and what share of it each time is used.

    Args:
        chunks: Of the data set.
        files: In a chunk.
        memory: The share of the data that fits.
        seed: Of the requests.
    """
    random = np.random.default_rng(seed)
    together = math.ceil(1 / memory)
    groups = -(-chunks // together)
    # left[group, chunk, slot]: whether that file is still on storage; a last group may have fewer chunks.
    left = np.zeros((groups, together, files), bool)
    left.reshape(groups * together, files)[:chunks] = True
    full = np.zeros((groups, files), bool)
    opened = taken = 0
    for request in random.permutation(chunks * files).tolist():
        chunk, slot = divmod(request, files)
        group = chunk // together
        if not full[group, slot]:
            chosen = _choose(left[group], full[group], slot, random)
            fills = left[group, chosen] & ~full[group]
            left[group, chosen] &= ~fills
            full[group] |= fills
            opened += 1
            taken += int(fills.sum())
        full[group, slot] = False
    if left.any() or taken != chunks * files:
        raise AssertionError("the simulation lost files")
    return opened / chunks, taken / opened / files


def _choose(left: np.ndarray, full: np.ndarray, slot: int, random: np.random.Generator) -> int:
    """Return the chunk of which most of what is left can be used, ties at random."""
    fillable = (left & ~full).sum(axis=1)
    share = fillable / np.maximum(1, left.sum(axis=1))
    score = np.where(left[:, slot], share + fillable * 1e-6 + random.random(len(left)) * 1e-9, -1)
    return int(score.argmax())
