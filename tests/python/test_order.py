"""Every sample once an epoch; the order is a function of seed, epoch, partitions, window, shuffle and subset alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import redox
import torch
from conftest import number_of, write


def numbers(ds: Any) -> list[int]:
    """Deliver an epoch; check every sample's bytes."""
    found = []
    for image, label in ds:
        assert number_of(image) == label
        found.append(label)
    return found


def data(path: str, batch_size: int = 16, **options: Any) -> redox.RedoxDataset:
    return redox.RedoxDataset(path, batch_size=batch_size, **options)


@pytest.mark.parametrize("n", [1, 2, 7, 16, 17, 997])
@pytest.mark.parametrize("batch_size", [1, 16, 1000])
def test_every_sample_once(pack: Any, n: int, batch_size: int) -> None:
    ds = data(pack(n), batch_size)
    for _ in range(2):
        assert sorted(numbers(ds)) == list(range(n))


def test_epochs_differ_and_come_back(pack: Any) -> None:
    ds = data(pack())
    first, second, third = numbers(ds), numbers(ds), numbers(ds)
    assert first != second != third != first
    ds.set_epoch(1)
    assert numbers(ds) == second
    assert numbers(ds) == third
    assert numbers(data(pack())) == first
    assert numbers(data(pack(), shuffle_seed=1)) != first


def test_the_order_does_not_depend_on_anything_else(pack: Any, tmp_path: Any) -> None:
    reference = numbers(data(pack()))
    variants: dict[str, dict[str, Any]] = {
        "batch size": {"batch_size": 7},
        "memory": {"memory_limit": "64mb"},
        "direct": {"io": "direct"},
        "buffered": {"io": "buffered"},
        "fields": {"fields": ["1", "0"]},
        "timeout": {"timeout": 7.0},
        "skip": {"on_error": "skip"},
    }
    for name, options in variants.items():
        ds = data(pack(), **options)
        got = [sample[1] for sample in ds] if name != "fields" else [label for label, _ in ds]
        assert got == reference, name
    lz4 = write(
        tmp_path / "lz4", ((torch.from_numpy(__import__("conftest").pixels(i)), i) for i in range(1000)), codec="lz4"
    )
    assert numbers(data(lz4)) == reference


def test_window_partitions_and_keep_are_part_of_the_order(pack: Any) -> None:
    orders = [
        tuple(numbers(data(pack(), **options)))
        for options in ({}, {"window": 4}, {"partitions": 4}, {"keep": "run"}, {"shuffle": False})
    ]
    assert len(set(orders)) == len(orders)
    assert {tuple(sorted(order)) for order in orders} == {tuple(range(1000))}


def test_stored_order(pack: Any) -> None:
    path = pack(500, shuffle=False)
    assert numbers(data(path, shuffle=False)) == list(range(500))
    ranks = [data(path, 10, shuffle=False, rank=r, world_size=3, nodes=1) for r in range(3)]
    batches = [np.reshape(numbers(ds)[:160], (16, 10)) for ds in ranks]
    together = np.concatenate(batches, axis=1)
    np.testing.assert_array_equal(together, np.arange(480).reshape(16, 30))


@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
@pytest.mark.parametrize(("drop_last", "pad"), [(False, None), (False, False), (True, None), (False, "mark")])
def test_ranks_get_every_sample_once(pack: Any, world_size: int, drop_last: bool, pad: Any) -> None:
    n, batch_size = 997, 16
    ranks = [
        data(pack(n), batch_size, rank=r, world_size=world_size, nodes=1, drop_last=drop_last, pad=pad, with_index=True)
        for r in range(world_size)
    ]
    got = [list(ds) for ds in ranks]
    assert [len(samples) for samples in got] == [len(ds) for ds in ranks]
    everything = [label for samples in got for _, label, _ in samples]
    if drop_last:
        assert len(set(everything)) == len(everything) == n - n % (batch_size * world_size)
    elif pad is False:
        assert sorted(everything) == list(range(n))
    else:
        assert len({len(samples) for samples in got}) == 1
        assert set(everything) == set(range(n))
        marked = [index for samples in got for *_, index in samples if index < 0]
        assert len(marked) == (len(everything) - n if pad == "mark" else 0)
        real = [label for samples in got for _, label, index in samples if index >= 0]
        assert pad != "mark" or sorted(real) == list(range(n))


def test_global_batches_do_not_depend_on_the_ranks(pack: Any) -> None:
    def global_batches(world_size: int) -> list[list[int]]:
        ranks = [data(pack(), 48 // world_size, rank=r, world_size=world_size, nodes=1) for r in range(world_size)]
        labels = [np.reshape(numbers(ds)[: 960 // world_size], (20, -1)) for ds in ranks]
        return np.sort(np.concatenate(labels, axis=1), axis=1).tolist()

    assert global_batches(1) == global_batches(2) == global_batches(3) == global_batches(4)


@pytest.mark.parametrize("subset", [(0.0, 0.9), (0.9, 1.0), (100, 333), [3, 1, 999, 500], np.arange(0, 1000, 7)])
def test_subsets(pack: Any, subset: Any) -> None:
    path = pack()
    with redox.open(path) as d:
        everything = [label for _, label in d[:]]
    if isinstance(subset, tuple):
        lo, hi = (round(v * 1000) if isinstance(v, float) else v for v in subset)
        wanted = everything[lo:hi]
    else:
        wanted = [everything[i] for i in subset]
    ds = data(path, subset=subset)
    assert len(ds) == len(wanted)
    assert ds.size == 1000
    assert sorted(numbers(ds)) == sorted(wanted)
    assert numbers(ds) != numbers(ds)
    assert numbers(data(path, subset=subset, shuffle=False)) == (
        wanted if isinstance(subset, tuple) else [everything[i] for i in sorted(subset)]
    )


def test_splits_cover_everything_once(pack: Any) -> None:
    train, valid = redox.split(pack(), [0.9, 0.1])
    got = numbers(data(pack(), subset=train)) + numbers(data(pack(), subset=valid))
    assert sorted(got) == list(range(1000))


def test_batch_indices_are_the_batches(pack: Any) -> None:
    path = pack(997)
    with redox.open(path) as d:
        for world_size in (1, 3):
            ranks = [
                list(
                    data(path, 16, rank=r, world_size=world_size, nodes=1, with_index=True, shuffle_seed=5, pad="mark")
                )
                for r in range(world_size)
            ]
            for step in (0, 5, 997 // (16 * world_size)):
                told = d.batch_indices(step, seed=5, batch_size=16, world_size=world_size, pad="mark")
                assert told.shape == (world_size, 16)
                assert told.dtype == np.int64
                for rank in range(world_size):
                    delivered = [index for *_, index in ranks[rank][step * 16 : step * 16 + 16]]
                    row = [i for i in told[rank].tolist() if i != np.iinfo(np.int64).min]
                    assert row == delivered
        with pytest.raises(ValueError, match="step"):
            d.batch_indices(-1, batch_size=16)


def test_index_source_and_key(pack: Any) -> None:
    path = pack(300, "dict")
    with redox.open(path) as d:
        for kind, look in (("stored", int), ("source", d.source), ("key", d.key)):
            for sample in data(path, with_index=kind):
                index = sample["__index__"]
                if kind == "stored":
                    assert d[index]["label"] == sample["label"]
                elif kind == "source":
                    assert index == sample["label"]
                else:
                    assert d[d.find(index)]["label"] == sample["label"]
            assert look is not None
