"""Grain with ArrayRecord: its DataLoader with an IndexSampler; its own threads read, its own processes are workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import grain.python as grain
from array_record.python.array_record_module import ArrayRecordWriter
from harness.data import Shape, collated, ready

PACKAGE = "grain"


def write(path: Path, rows: Iterable[tuple[int, bytes]], shape: Shape) -> None:
    """Write one file whose groups are single records, as Grain's documentation wants it for random access."""
    writer = ArrayRecordWriter(str(path), "group_size:1")
    for label, row in rows:
        writer.write(label.to_bytes(8, "little") + row)
    writer.close()


class Ready(grain.MapTransform):
    """A record as a sample."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape

    def map(self, record: bytes) -> tuple[Any, int]:
        return ready(self._shape, record[8:]), int.from_bytes(record[:8], "little")


class Epochs:
    """Epochs of a Grain DataLoader, each with a sampler of its own."""

    def __init__(self, path: Path, shape: Shape, workers: int) -> None:
        self._source, self._workers = grain.ArrayRecordDataSource(str(path)), workers
        self._operations = [Ready(shape), grain.Batch(shape.batch, batch_fn=collated)]
        self._epoch, self.iterator, self.state = 0, None, None

    def __iter__(self) -> Iterator[Any]:
        self._epoch += 1
        sampler = grain.IndexSampler(len(self._source), grain.NoSharding(), True, num_epochs=1, seed=self._epoch)
        what = {"data_source": self._source, "sampler": sampler, "operations": self._operations}
        self.iterator = iter(grain.DataLoader(**what, worker_count=self._workers))
        if self.state is not None:
            self.iterator.set_state(self.state)
        return self.iterator


def load(path: Path, shape: Shape, workers: int, cache: Path) -> Iterable[Any]:
    """Return a loader."""
    return Epochs(path, shape, workers)


state = lambda loader: loader.iterator.get_state()  # noqa: E731
resume = lambda loader, state: setattr(loader, "state", state)  # noqa: E731
