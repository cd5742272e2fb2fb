"""What a delivered order is worth."""

from __future__ import annotations

from typing import Any

import numpy as np

CLASSES = 100  # the source has them one after the other


def vif(order: np.ndarray[Any, Any], batch: int, samples: int) -> float:
    """Return the variance of a batch's mean class over that of a uniform shuffle: 1 is as good, `batch` the worst.

    Args:
        order: Sample numbers as delivered.
        batch: Samples of a batch; an incomplete last one is left out.
        samples: Of the data set.
    """
    classes = np.arange(samples) * CLASSES // samples
    whole = order[: len(order) // batch * batch].reshape(-1, batch)
    means = classes[whole].mean(axis=1)
    uniform = classes.var() / batch * (samples - batch) / (samples - 1)
    return float(((means - classes.mean()) ** 2).mean() / uniform)


def amiss(order: np.ndarray[Any, Any], samples: int) -> str:
    """Return in words what an epoch left out or repeated; nothing if it had each sample once."""
    counts = np.bincount(order, minlength=samples)
    missing, repeated = int((counts == 0).sum()), int((counts > 1).sum())
    return f"{missing} missing, {repeated} repeated" if missing or repeated else ""
