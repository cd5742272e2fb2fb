"""MapDataset: exact answers by default, the plan's next samples with redirect=True, refusals of what would break it."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import redox
import torch
from conftest import number_of
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler, Subset, WeightedRandomSampler
from torch.utils.data import random_split as split_randomly


def stored(path: str) -> list[int]:
    with redox.open(path) as d:
        return [label for _, label in d[:]]


def labels(loader: Any) -> list[int]:
    found = []
    for images, numbers in loader:
        assert [number_of(image) for image in images] == numbers.tolist()
        found += numbers.tolist()
    return found


# -- exact -------------------------------------------------------------------------------------------------------------


def test_exact(pack: Any) -> None:
    path = pack()
    order = stored(path)
    ds = redox.MapDataset(path)
    assert len(ds) == ds.size == 1000
    for i in (0, 17, -1, np.int64(5)):
        image, label = ds[i]
        assert isinstance(image, torch.Tensor)
        assert number_of(image) == label == order[i]
    assert [label for _, label in ds.__getitems__([3, 1, 3])] == [order[i] for i in (3, 1, 3)]
    assert labels(DataLoader(ds, batch_size=16)) == order
    for wrong in (1000, -1001):
        with pytest.raises(IndexError):
            ds[wrong]
    assert ds.stats()["total"]["samples"] > 1000


def test_exact_under_samplers(pack: Any) -> None:
    path = pack()
    order = stored(path)
    ds = redox.MapDataset(path)
    sampler = WeightedRandomSampler([1.0] * 1000, 100)
    torch.manual_seed(3)
    wanted = [order[i] for i in sampler]
    torch.manual_seed(3)
    torch.empty((), dtype=torch.int64).random_()  # the DataLoader's own draw
    got = labels(DataLoader(ds, batch_size=16, sampler=sampler))
    assert len(got) == len(wanted) == 100
    first, second = split_randomly(ds, [0.7, 0.3])
    together = labels(DataLoader(first, batch_size=16)) + labels(DataLoader(second, batch_size=16))
    assert sorted(together) == list(range(1000))
    assert labels(DataLoader(Subset(ds, [5, 7, 5]), batch_size=2)) == [order[i] for i in (5, 7, 5)]


def test_exact_of_a_subset(pack: Any) -> None:
    path = pack()
    order = stored(path)
    ds = redox.MapDataset(path, subset=(100, 200), with_index=True)
    assert len(ds) == 100
    assert ds[0][1:] == (order[100], 100)
    assert ds[-1][1:] == (order[199], 199)
    listed = redox.MapDataset(path, subset=[7, 3, 500])
    assert [listed[i][1] for i in range(3)] == [order[i] for i in (3, 7, 500)]


def test_exact_with_fields_transform_and_pickle(pack: Any) -> None:
    ds = redox.MapDataset(pack(300, "dict"), fields=["text", "label"], transform=lambda d: (d["text"], d["label"]))
    text, label = ds[5]
    assert text == f"sample {label}"
    plain = pickle.loads(pickle.dumps(redox.MapDataset(pack(300, "dict"))))
    assert plain[5]["label"] == label
    scalars = redox.MapDataset(pack(300, "scalar"))
    assert number_of(scalars[3]) in range(300)


# -- redirected --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 16, 1000])
def test_any_sampler_that_covers_an_epoch_gets_every_sample_once(pack: Any, batch_size: int) -> None:
    path = pack(997)
    ds = redox.MapDataset(path, redirect=True)
    for options in ({"shuffle": True}, {"shuffle": False}):
        loader = DataLoader(ds, batch_size=batch_size, **options)  # type: ignore[arg-type]
        for _ in range(2):
            assert sorted(labels(loader)) == list(range(997))


def test_the_order_is_the_plans(pack: Any) -> None:
    path = pack(997)
    iterable = redox.RedoxDataset(path, batch_size=16, shuffle_seed=4)
    wanted = [[label for _, label in iterable] for _ in range(2)]
    ds = redox.MapDataset(path, redirect=True, batch_size=16, shuffle_seed=4)
    assert [labels(DataLoader(ds, batch_size=16, shuffle=True)) for _ in range(2)] == wanted
    ds.set_epoch(0)
    assert labels(DataLoader(ds, batch_size=16)) == wanted[0]


def test_every_chunk_is_read_once(pack: Any) -> None:
    ds = redox.MapDataset(pack(997), redirect=True)
    labels(DataLoader(ds, batch_size=16, shuffle=True))
    with redox.open(pack(997)) as d:
        assert ds.stats()["epoch"]["chunks_read"] == d.info.chunks


@pytest.mark.parametrize("drop_last", [False, True])
def test_distributed_sampler(pack: Any, drop_last: bool) -> None:
    path = pack(997)
    got = []
    for rank in range(3):
        ds = redox.MapDataset(path, redirect=True, rank=rank, world_size=3, nodes=1)
        sampler: Any = DistributedSampler(ds, num_replicas=3, rank=rank, drop_last=drop_last)
        got.append(labels(DataLoader(ds, batch_size=16, sampler=sampler)))
    assert len({len(part) for part in got}) == 1
    everything = [label for part in got for label in part]
    assert len(everything) == (996 if drop_last else 999)
    assert len(set(everything)) == 997 or drop_last  # dropping, the sampler does not cover the epoch


def test_batches_of_changing_sizes(pack: Any) -> None:
    class Growing(BatchSampler):
        def __init__(self) -> None:
            super().__init__(RandomSampler(range(997)), 1, False)

        def __iter__(self) -> Any:
            rest, size = list(self.sampler), 1
            while rest:
                yield rest[:size]
                rest, size = rest[size:], size % 30 + 1

    ds = redox.MapDataset(pack(997), redirect=True, batch_size=16)
    assert sorted(labels(DataLoader(ds, batch_sampler=Growing()))) == list(range(997))


def test_transform_with_redirect(pack: Any) -> None:
    ds = redox.MapDataset(pack(997), redirect=True, transform=lambda x: x.float())
    seen = []
    for images, numbers in DataLoader(ds, batch_size=16):
        assert images.dtype == torch.float32
        seen += numbers.tolist()
    assert sorted(seen) == list(range(997))


def test_single_indices_stay_exact(pack: Any) -> None:
    ds = redox.MapDataset(pack(997), redirect=True)
    assert ds[17][1] == stored(pack(997))[17]


def test_a_new_iteration_leaves_the_rest(pack: Any) -> None:
    ds = redox.MapDataset(pack(997), redirect=True)
    loader = DataLoader(ds, batch_size=16, shuffle=True)
    for _ in range(5):
        for step, _ in enumerate(loader):
            if step == 3:
                break
    assert sorted(labels(loader)) == list(range(997))


def test_refusals(pack: Any) -> None:
    ds = redox.MapDataset(pack(997), redirect=True)
    with pytest.raises(ValueError, match="asked for again"):
        list(DataLoader(ds, batch_size=16, sampler=WeightedRandomSampler([1.0] * 997, 997)))
    ds.set_epoch(0)
    ds.__getitems__([1, 2])
    with pytest.raises(ValueError, match="index 2 is asked for again"):
        ds.__getitems__([2])
    ds.set_epoch(0)
    assert len(ds.__getitems__([2])) == 1
    with pytest.raises(ValueError, match="Subset"):
        next(iter(DataLoader(Subset(ds, range(100)), batch_size=16)))
    with pytest.raises(ValueError, match="Subset"):
        next(iter(DataLoader(split_randomly(ds, [0.5, 0.5])[0], batch_size=16)))
    with pytest.raises(IndexError):
        ds.__getitems__([997])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_out_of_order_are_refused(pack: Any, method: str) -> None:
    ds = redox.MapDataset(pack(997), redirect=True)
    with pytest.raises(ValueError, match="in_order=False"):
        list(DataLoader(ds, batch_size=16, num_workers=2, in_order=False, multiprocessing_context=method))
    assert len(list(DataLoader(ds, batch_size=16, in_order=False))) == 63  # without workers nothing is out of order
    exact = DataLoader(redox.MapDataset(pack(997)), batch_size=16, num_workers=2, in_order=False)
    assert sorted(labels(exact)) == list(range(997))


def test_more_than_the_ranks_share_is_refused(pack: Any) -> None:
    ds = redox.MapDataset(pack(997), redirect=True, rank=0, world_size=2, nodes=1)
    with pytest.raises(ValueError, match=r"share of the epoch \(499\)"):
        list(DataLoader(ds, batch_size=16))


def test_resuming(pack: Any) -> None:
    path = pack(997)
    order = labels(DataLoader(redox.MapDataset(path, redirect=True), batch_size=16))
    ds = redox.MapDataset(path, redirect=True)
    iterator = iter(DataLoader(ds, batch_size=16))
    for _ in range(10):
        next(iterator)
    again = redox.MapDataset(path, redirect=True)
    again.load_state_dict(ds.state_dict())
    rest = range(160, 997)
    assert labels(DataLoader(again, batch_size=16, sampler=rest)) == order[160:]


@pytest.mark.parametrize("options", [{"redirect": 1}, {"batch_size": 0}, {"shuffle_seed": -1}, {"subset": (0, 5000)}])
def test_bad_options(pack: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        redox.MapDataset(pack(), **options)
    with pytest.raises(TypeError):
        redox.MapDataset(pack(), batched=True)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_redirection_of_fewer_batches_than_workers(pack: Any, method: str) -> None:
    """The first request of one worker is the short last batch."""
    ds = redox.MapDataset(pack(100), redirect=True)
    loader = DataLoader(ds, 64, shuffle=True, num_workers=3, multiprocessing_context=method)
    assert [sorted(labels(loader)) for _ in range(2)] == [list(range(100))] * 2
