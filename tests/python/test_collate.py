"""The default collation of our samples: what torch's gives, without its copy where nothing was changed."""

from __future__ import annotations

import copy
import itertools
import pickle
from typing import Any

import pytest
import redox
import torch
from conftest import number_of
from torch.utils.data import DataLoader, default_collate


def data(path: str, **options: Any) -> redox.RedoxDataset:
    return redox.RedoxDataset(path, batch_size=16, **options)


def equal(left: Any, right: Any) -> bool:
    """Same types, same values, all the way down."""
    if type(left) is not type(right):
        return False
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and left.shape == right.shape and torch.equal(left, right)
    if isinstance(left, dict):
        return list(left) == list(right) and all(equal(left[k], right[k]) for k in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(equal, left, right))
    return bool(left == right)


def plain(sample: Any) -> Any:
    """The sample without our class, with memory of its own."""
    if isinstance(sample, dict):
        return {k: plain(v) for k, v in sample.items()}
    if isinstance(sample, tuple):
        return tuple(plain(v) for v in sample)
    return sample.clone() if isinstance(sample, torch.Tensor) else sample


@pytest.mark.parametrize("layout", ["tuple", "dict", "scalar"])
@pytest.mark.parametrize("with_index", [False, True, "key"])
def test_collation_gives_what_torch_would(pack: Any, layout: str, with_index: Any) -> None:
    n = {"tuple": 1000, "dict": 300, "scalar": 300}[layout]
    samples = [plain(sample) for sample in data(pack(n, layout), with_index=with_index)]
    wanted = [default_collate(samples[i : i + 16]) for i in range(0, n, 16)]
    for loader in (
        DataLoader(data(pack(n, layout), with_index=with_index), batch_size=16),
        redox.DataLoader(data(pack(n, layout), with_index=with_index)),
    ):
        got = list(loader)
        assert len(got) == len(wanted)
        assert all(map(equal, got, wanted))


def stacks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count what torch.stack copies."""
    counted: list[int] = []
    stack = torch.stack

    def counting(tensors: Any, *arguments: Any, **options: Any) -> Any:
        counted.append(len(tensors))
        return stack(tensors, *arguments, **options)

    monkeypatch.setattr(torch, "stack", counting)
    return counted


@pytest.mark.parametrize("layout", ["tuple", "dict"])
@pytest.mark.parametrize("redirect", [False, True])
def test_collation_of_whole_batches_copies_nothing(pack: Any, layout: str, redirect: bool, monkeypatch: Any) -> None:
    n = {"tuple": 1000, "dict": 300}[layout]
    counted = stacks(monkeypatch)
    for _ in DataLoader(data(pack(n, layout)), batch_size=16):
        pass
    mapped = redox.MapDataset(pack(n, layout), redirect=redirect, shuffle_seed=3)
    for _ in DataLoader(mapped, batch_size=16, shuffle=True):
        pass
    assert counted == []


def _replaced(batch: list[Any]) -> None:
    batch[3] = (torch.zeros_like(batch[3][0]), 5)


def _reordered(batch: list[Any]) -> None:
    batch.reverse()


def _shortened(batch: list[Any]) -> None:
    del batch[4:]


def _repeated(batch: list[Any]) -> None:
    batch[1] = batch[0]


def _written(batch: list[Any]) -> None:
    batch[2][0].fill_(7)


def _written_through_numpy(batch: list[Any]) -> None:
    batch[2][0].numpy()[...] = 7


def _reshaped(batch: list[Any]) -> None:
    for image, _ in batch:
        image.unsqueeze_(0)


def _turned(batch: list[Any]) -> None:
    for image, _ in batch:
        image.transpose_(1, 2)


def _exchanged(batch: list[Any]) -> None:
    batch[2][0].data = torch.full_like(batch[2][0], 9)


def _set(batch: list[Any]) -> None:
    batch[2][0].set_(torch.full((3, 8, 8), 9, dtype=torch.uint8))


CHANGES = [
    *(
        _replaced,
        _reordered,
        _shortened,
        _repeated,
        _written,
        _written_through_numpy,
        _reshaped,
        _turned,
        _exchanged,
        _set,
    )
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("inference", [False, True])
def test_changed_samples_are_collated_as_they_are(pack: Any, change: Any, inference: bool) -> None:
    def collate(batch: list[Any]) -> Any:
        change(batch)
        wanted = default_collate([plain(sample) for sample in batch])
        got = default_collate(batch)
        assert equal(got, wanted)
        return got

    with torch.inference_mode(inference):
        for _ in itertools.islice(DataLoader(data(pack()), batch_size=16, collate_fn=collate), 3):
            pass


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(label=-1),
        lambda d: d.update(image=torch.zeros(3, 8, 8, dtype=torch.uint8)),
        lambda d: d.update(extra=1),
        lambda d: d.pop("text"),
        lambda d: d["image"].mul_(2),
        lambda d: d.update(text="x"),
    ],
)
def test_changed_dicts_are_collated_as_they_are(pack: Any, change: Any) -> None:
    def collate(batch: list[Any]) -> Any:
        for sample in batch:
            change(sample)
        wanted = default_collate([plain(sample) for sample in batch])
        got = default_collate(batch)
        assert equal(got, wanted)
        return got

    for _ in itertools.islice(DataLoader(data(pack(300, "dict")), batch_size=16, collate_fn=collate), 3):
        pass


def test_one_changed_dict_of_many(pack: Any) -> None:
    def collate(batch: list[Any]) -> Any:
        batch[5]["label"] = -5
        return default_collate(batch)

    batch = next(iter(DataLoader(data(pack(300, "dict")), batch_size=16, collate_fn=collate)))
    assert batch["label"][5] == -5
    assert [number_of(image) for image in batch["image"][:5]] == batch["label"][:5].tolist()


def test_a_batch_does_not_share_memory_with_samples_that_somebody_keeps(pack: Any) -> None:
    kept: list[Any] = []

    def keep_samples(batch: list[Any]) -> Any:
        kept.extend(batch)
        return default_collate(batch)

    def keep_tensors(batch: list[Any]) -> Any:
        kept.extend((image, label) for image, label in batch)
        return default_collate(batch)

    def twice(batch: list[Any]) -> Any:
        first, second = default_collate(batch), default_collate(batch)
        first[0].zero_()
        assert [number_of(image) for image in second[0]] == second[1].tolist()
        return first

    for collate in (keep_samples, keep_tensors, twice):
        kept.clear()
        for images, _ in itertools.islice(DataLoader(data(pack()), batch_size=16, collate_fn=collate), 5):
            images.zero_()
        assert all(number_of(image) == label for image, label in kept)


def test_samples_are_pickled_and_copied_as_plain_ones(pack: Any) -> None:
    for layout, kind in (("tuple", tuple), ("dict", dict)):
        sample = next(iter(data(pack(300, layout))))
        for twin in (copy.deepcopy(sample), pickle.loads(pickle.dumps(sample)), copy.copy(sample)):
            assert type(twin) is kind
            assert equal(plain(twin), kind(plain(sample)))
