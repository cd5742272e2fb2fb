"""MapDataset's exact answers in DataLoader workers: an engine reads, nothing else changes."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any

import numpy as np
import pytest
import redox
from conftest import number_of, pixels

torch = pytest.importorskip("torch")
DataLoader, Subset = torch.utils.data.DataLoader, torch.utils.data.Subset
B = 32


def labels(batches: Any) -> list[int]:
    found = []
    for images, numbers in batches:
        assert [number_of(image) for image in images] == numbers.tolist()
        found += numbers.tolist()
    return found


@pytest.fixture
def order(pack: Any) -> list[int]:
    with redox.open(pack()) as d:
        return [label for _, label in d[:]]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_what_was_asked_for(pack: Any, order: list[int], workers: int) -> None:
    loader = DataLoader(redox.MapDataset(pack()), B, num_workers=workers)
    assert [labels(loader) for _ in range(2)] == [order] * 2


def test_samplers(pack: Any, order: list[int]) -> None:
    ds = redox.MapDataset(pack())
    first, second = torch.utils.data.random_split(ds, [0.7, 0.3])
    assert labels(DataLoader(first, B, num_workers=2)) == [order[i] for i in first.indices]
    assert labels(DataLoader(second, B, num_workers=2)) == [order[i] for i in second.indices]
    assert labels(DataLoader(Subset(ds, [5, 7, 5]), 2, num_workers=2)) == [order[i] for i in (5, 7, 5)]
    drawn = list(torch.utils.data.WeightedRandomSampler([1.0] * 1000, 100))
    assert labels(DataLoader(ds, B, sampler=drawn, num_workers=2)) == [order[i] for i in drawn]
    ranks = [torch.utils.data.DistributedSampler(ds, 3, rank) for rank in range(3)]
    seen = [labels(DataLoader(ds, B, sampler=sampler, num_workers=1)) for sampler in ranks]
    assert seen == [[order[i] for i in sampler] for sampler in ranks]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_start_methods(pack: Any, order: list[int], method: str) -> None:
    ds = redox.MapDataset(pack())
    assert ds[3][1] == order[3]  # the library is in use when the workers begin
    live = iter(DataLoader(redox.RedoxDataset(pack(), batch_size=B), B))
    next(live)
    loader = DataLoader(ds, B, num_workers=1, persistent_workers=True, multiprocessing_context=method)
    assert [labels(loader) for _ in range(2)] == [order] * 2
    next(live)


def test_one_by_one(pack: Any, order: list[int]) -> None:
    class Wrapped(torch.utils.data.Dataset):  # type: ignore[misc,name-defined]
        def __init__(self, ds: Any) -> None:
            self.ds = ds

        def __len__(self) -> int:
            return len(self.ds)

        def __getitem__(self, index: int) -> Any:
            return self.ds[index]

    ds = redox.MapDataset(pack())
    assert labels(DataLoader(Wrapped(ds), B, num_workers=2)) == order
    assert [label for _, label in DataLoader(ds, None, num_workers=1)] == order
    redirected = redox.MapDataset(pack(), redirect=True)
    assert [label for _, label in DataLoader(redirected, None, num_workers=1)] == order


@pytest.mark.parametrize("layout", ["tuple", "dict", "ragged", "scalar"])
@pytest.mark.parametrize("with_index", [False, "stored", "source", "key"])
def test_layouts(pack: Any, layout: str, with_index: Any) -> None:
    ds = redox.MapDataset(pack(200, layout), with_index=with_index)
    indices = np.random.default_rng(3).permutation(200).tolist()
    options = {"collate_fn": list} if layout == "ragged" else {}
    one, two = (list(DataLoader(ds, 16, sampler=indices, num_workers=workers, **options)) for workers in (0, 2))
    assert repr(one) == repr(two)


def test_fields_subset_and_transforms(pack: Any) -> None:
    def shout(sample: Any) -> Any:
        return {"text": sample["text"].upper(), "label": sample["label"] * 2}

    for options in ({"fields": ["label", "text"], "transform": shout}, {"subset": [7, 3, 50]}, {"subset": (100, 150)}):
        ds = redox.MapDataset(pack(200, "dict"), **options)
        one, two = (list(DataLoader(ds, 16, num_workers=workers)) for workers in (0, 2))
        assert repr(one) == repr(two)


def test_pictures(image_folder: str) -> None:
    ds = redox.MapDataset(image_folder, transform=lambda image: torch.as_tensor(np.asarray(image).copy()))
    assert len(list(DataLoader(ds, 8, num_workers=2))) == 5
    for ours, theirs in zip(DataLoader(ds, 8, num_workers=2), DataLoader(ds, 8), strict=True):
        assert torch.equal(ours[0], theirs[0])
        assert torch.equal(ours[1], theirs[1])


def test_a_batch_of_more_numbers_than_a_message_has(pack: Any, order: list[int]) -> None:
    ds = redox.MapDataset(pack())
    indices = np.random.default_rng(4).integers(0, 1000, 20000).tolist()
    (batch,) = DataLoader(ds, 20000, sampler=indices, num_workers=1)
    assert batch[1].tolist() == [order[i] for i in indices]


@pytest.mark.parametrize("limit", ["auto", "2mb", "100kb"])
def test_a_trainer_that_keeps_everything(pack: Any, order: list[int], limit: str) -> None:
    ds = redox.MapDataset(pack(), memory_limit=limit)
    for prefetch in (2, 40):
        kept = list(DataLoader(ds, B, num_workers=2, prefetch_factor=prefetch))
        assert labels(kept) == order
        peak = ds.stats()["total"]["resident_peak"]
        assert peak <= {"auto": 4 << 20, "2mb": 2 << 20, "100kb": 100 << 10}[limit]
        for images, _ in kept:
            images.zero_()


def test_a_limit_that_is_too_small(pack: Any) -> None:
    ds = redox.MapDataset(pack(), memory_limit="8kb")
    with pytest.raises(redox.MemoryLimitError, match=r"memory_limit is 8192 bytes, but \d+ are needed"):
        next(iter(DataLoader(ds, B, num_workers=1)))


def test_breaks(pack: Any, order: list[int]) -> None:
    ds = redox.MapDataset(pack(), memory_limit="200kb")
    for persistent in (False, True):
        loader = DataLoader(ds, B, num_workers=2, persistent_workers=persistent)
        for _ in range(8):
            for images, numbers in loader:
                labels([(images, numbers)])
                break
        assert labels(loader) == order


def test_large_results_of_transforms(pack: Any) -> None:
    def enlarged(image: Any) -> Any:
        return image.float().repeat(1, 2, 4)  # 6 KB a sample: collated in the engine's memory, while there is room

    for options in ({}, {"memory_limit": "1mb"}):
        ds = redox.MapDataset(pack(), transform=enlarged, **options)
        expected, kept = list(DataLoader(ds, B)), []
        for ours, theirs in zip(DataLoader(ds, B, num_workers=2), expected, strict=True):
            assert all(torch.equal(x, y) for x, y in zip(ours, theirs, strict=True))
            kept.append(ours)
        assert all(torch.equal(x[0], y[0]) for x, y in zip(kept, expected, strict=True))


def test_counters(pack: Any) -> None:
    ds = redox.MapDataset(pack())
    list(DataLoader(ds, B, num_workers=2))
    list(DataLoader(ds, B))
    counts = ds.stats()["total"]
    assert (counts["samples"], counts["batches"], counts["bytes_delivered"]) == (2000, 64, 2 * 1000 * 200)
    chunks = redox.open(pack()).info.chunks
    assert 2 * chunks <= counts["reads"] <= 2 * (32 + 2 * chunks)  # neighbours by one request, and tables
    assert counts["bytes_read"] >= 2 * 1000 * 200
    random = redox.MapDataset(pack())
    list(DataLoader(random, B, shuffle=True, num_workers=2))
    assert random.stats()["total"]["reads"] > counts["reads"] / 2


def test_who_looks_sees_it(pack: Any, tmp_path: Any) -> None:
    from test_cli import good

    link = tmp_path / "mine.redox"
    link.symlink_to(pack())
    ds = redox.MapDataset(link)
    batches = iter(DataLoader(ds, B, num_workers=2))
    kept = [next(batches) for _ in range(4)]
    (engine,) = json.loads(good("top", str(link), "--json"))["engines"]
    (rank,) = engine["ranks"]
    assert sorted(worker["pid"] for worker in rank["workers"]) == sorted(w.pid for w in batches._workers)
    assert sorted(worker["worker"] for worker in rank["workers"]) == [0, 1]
    assert rank["lent"] >= 4
    assert rank["stats"]["total"]["samples"] >= 4 * B
    assert 0 < engine["memory"]["batches"] <= engine["memory"]["used"] <= engine["memory"]["limit"]
    said = good("top", str(link))
    assert "2 workers   samples by number" in said, said
    del kept


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def test_index_out_of_range(pack: Any) -> None:
    with pytest.raises(IndexError):
        list(DataLoader(redox.MapDataset(pack()), 2, sampler=[1, 2, 1000], num_workers=1))


def engine_of(ds: Any) -> int:
    """The pid of the engine that serves a data set."""
    from redox.client import connection_to

    connection = connection_to(ds._engine(), 0)
    assert connection is not None
    return connection.pid


@pytest.mark.parametrize("persistent", [False, True])
def test_engine_killed(pack: Any, order: list[int], persistent: bool) -> None:
    ds = redox.MapDataset(pack())
    loader = DataLoader(ds, B, num_workers=2, persistent_workers=persistent)
    batches = iter(loader)
    next(batches)
    os.kill(engine_of(ds), signal.SIGKILL)
    with pytest.raises(redox.EngineError, match="has ended"):
        labels(batches)
    del batches
    if persistent:
        loader = DataLoader(ds, B, num_workers=2)  # PyTorch's workers are not told of an error
    assert labels(loader) == order


def test_engine_stopped(pack: Any, order: list[int]) -> None:
    ds = redox.MapDataset(pack(), timeout=0.2)
    batches = iter(DataLoader(ds, B, num_workers=1))
    next(batches)
    pid = engine_of(ds)
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(redox.StallError, match=f"the engine process {pid} has not answered"):
            labels(batches)
    finally:
        os.kill(pid, signal.SIGCONT)
    del batches
    assert labels(DataLoader(ds, B, num_workers=2)) == order


def test_worker_killed_again_and_again(pack: Any, order: list[int]) -> None:
    ds = redox.MapDataset(pack(), memory_limit="100kb")
    indices = order * 20
    for delay in (0.0, 0.02, 0.05):
        loader = DataLoader(ds, B, sampler=list(range(1000)) * 20, num_workers=2)
        batches = iter(loader)
        kept = [next(batches)]
        time.sleep(delay)
        os.kill(batches._workers[0].pid, signal.SIGKILL)
        # It may have died with the lock of PyTorch's own event, for which PyTorch's loader would wait for ever.
        lock = batches._workers_done_event._cond
        lock.acquire(timeout=3)
        lock.release()
        with pytest.raises(RuntimeError, match=r"killed|exited unexpectedly"):
            kept.extend(batches)
        assert labels(kept) == indices[: len(kept) * B]
        del batches, loader
    assert labels(DataLoader(ds, B, num_workers=2)) == order


def test_corrupt_samples(tmp_path: Any) -> None:
    from conftest import write

    path = write(tmp_path / "d.redox", ((pixels(i), i) for i in range(200)), shuffle=False)
    shard = next(file for file in sorted((tmp_path / "d.redox").rglob("*")) if file.suffix == ".rdx")
    data = bytearray(shard.read_bytes())
    at = bytes(data).index(pixels(23).tobytes())
    data[at + 50] ^= 1
    shard.write_bytes(data)
    for batch_size in (16, 1):
        with pytest.raises(redox.CorruptError, match="sample 23: wrong checksum"):
            list(DataLoader(redox.MapDataset(path), batch_size, num_workers=1))
    for workers in (0, 2):
        ds = redox.MapDataset(path, on_error="skip")
        found = labels(DataLoader(ds, 16, num_workers=workers))
        assert found == [22 if i == 23 else i for i in range(200)]
        assert ds.stats()["total"]["skipped"] == 1
        with pytest.raises(redox.CorruptError, match="max_skipped"):
            list(DataLoader(redox.MapDataset(path, on_error="skip", max_skipped=0), 16, num_workers=workers))
