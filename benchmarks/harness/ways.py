"""Ways to load that are compared, each run in a process of its own; see `child.py`."""

from __future__ import annotations

import multiprocessing
import time
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from harness.child import length, timed
from harness.data import file_of


def batched(path: str, batch: int, memory_limit: int, window: int | None, seconds: float) -> dict[str, Any]:
    """Whole batches out of a RedoxDataset."""
    import redox

    ds = redox.RedoxDataset(path, batch_size=batch, batched=True, memory_limit=memory_limit, window=window)
    return timed(lambda: ds, length, 0, seconds) | _counters(ds)


def largest_window(path: str, batch: int, memory_limit: int) -> dict[str, int | None]:
    """The largest window that fits a limit; None where the default one does."""
    import redox

    ds = redox.RedoxDataset(path, batch_size=batch, batched=True, memory_limit=memory_limit)
    try:
        next(iter(ds))
    except redox.MemoryLimitError as error:
        return {"window": error.window}
    return {"window": None}


def samplewise(path: str, batch: int, memory_limit: int, window: int | None, seconds: float) -> dict[str, Any]:
    """Samples out of a RedoxDataset, collated by torch's own DataLoader."""
    import redox

    ds = redox.RedoxDataset(path, batch_size=batch, memory_limit=memory_limit, window=window)
    loader = DataLoader(ds, batch_size=batch)
    return timed(lambda: loader, length, 0, seconds) | _counters(ds)


def loader(
    kind: str, path: str, batch: int, memory_limit: int, window: int | None, workers: int, turns: int, seconds: float
) -> dict[str, Any]:
    """`redox.DataLoader`, or torch's own over the same data set; with a transform where `turns` are given."""
    import redox

    transform = partial(_transformed, turns) if turns else None
    ds = redox.RedoxDataset(path, batch_size=batch, memory_limit=memory_limit, window=window, transform=transform)
    how: dict[str, Any] = {"num_workers": workers, "persistent_workers": workers > 0}
    made = redox.DataLoader(ds, **how) if kind == "redox" else DataLoader(ds, batch_size=batch, **how)
    # An epoch with a transform takes minutes.
    return timed(lambda: made, length, seconds / 3 if turns else 0, seconds)


def busy(turns: int) -> int:
    """Compute, as decoding in Python does; release nothing. Turns, not time: who waits for a core does none."""
    value = 1
    for turn in range(turns):
        value = (value * 1103515245 + turn) & 0x7FFFFFFF
    return value


def calibrated(us: float) -> dict[str, int]:
    """How many turns take so many microseconds where nothing disturbs."""
    turns, best = 1000, float("inf")
    for _ in range(500):
        begin = time.process_time()
        busy(turns)
        best = min(best, time.process_time() - begin)
    return {"turns": round(turns * us / (1e6 * best))}


def _transformed(turns: int, sample: Any) -> Any:
    busy(turns)
    return sample


def _many(samples: int, turns: int) -> int:
    for _ in range(samples):
        busy(turns)
    return samples


def pool(turns: int, batch: int, workers: int, seconds: float) -> dict[str, Any]:
    """The same transform in a bare pool of processes, which moves nothing but a number for each batch."""
    with multiprocessing.Pool(workers) as processes:
        done = processes.imap_unordered(partial(_many, batch), repeat(turns, 1 << 14))
        return timed(lambda: done, int, seconds / 3, seconds)


def _counters(ds: Any) -> dict[str, Any]:
    total = ds.stats()["total"]
    return {name: total[name] for name in ("chunks_read", "resident_peak", "wait_storage_s", "wait_decode_s")}


class Mapped(Dataset[tuple[torch.Tensor, int]]):
    """The usual way to read arrays of one size: a memmap, indexed sample by sample."""

    def __init__(self, path: str, size: int) -> None:
        self._rows = np.memmap(path, np.uint8, "r").reshape(-1, size)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.from_numpy(self._rows[index].copy()), index


class Files(Dataset[tuple[Any, int]]):
    """One file per sample; as tensors of one size, or as bytes."""

    def __init__(self, root: str, samples: int, tensors: bool) -> None:
        self._paths = [str(file_of(root, label)) for label in range(samples)]
        self._tensors = tensors

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        with open(self._paths[index], "rb") as file:
            data = file.read()
        return (torch.from_numpy(np.frombuffer(data, np.uint8).copy()) if self._tensors else data), index


def mapped(path: str, size: int, batch: int, seconds: float) -> dict[str, Any]:
    """A DataLoader over `Mapped`, in the process."""
    loader = DataLoader(Mapped(path, size), batch_size=batch, shuffle=True)
    return timed(lambda: loader, length, seconds / 2, seconds)


def files(root: str, samples: int, batch: int, tensors: bool, workers: int, seconds: float) -> dict[str, Any]:
    """A DataLoader over `Files`."""
    loader = DataLoader(
        Files(root, samples, tensors), batch_size=batch, shuffle=True, num_workers=workers,
        persistent_workers=workers > 0, collate_fn=None if tensors else _columns,
    )  # fmt: skip
    return timed(lambda: loader, length, seconds / 2, seconds)


def _columns(samples: list[tuple[bytes, int]]) -> tuple[list[bytes], list[int]]:
    return [data for data, _ in samples], [label for _, label in samples]
