"""redox.DataLoader: what torch's loader gives, faster, and with its attributes for frameworks."""

from __future__ import annotations

from typing import Any

import pytest
import redox
import torch
from conftest import number_of


def data(path: str, **options: Any) -> redox.RedoxDataset:
    return redox.RedoxDataset(path, batch_size=16, **options)


def test_it_is_a_torch_loader(pack: Any) -> None:
    loader = redox.DataLoader(data(pack()), batch_size=16, pin_memory=False)
    assert isinstance(loader, torch.utils.data.DataLoader)
    assert len(loader) == 63
    assert loader.total_batch_size == 16
    assert redox.DataLoader(data(pack(), rank=1, world_size=4, nodes=1)).total_batch_size == 64
    assert loader._is_accelerate_prepared
    assert loader.use_stateful_dataloader


def test_epochs(pack: Any) -> None:
    loader = redox.DataLoader(data(pack()))
    first, second = ([n for _, labels in loader for n in labels.tolist()] for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(1000))
    loader.set_epoch(0)
    assert [n for _, labels in loader for n in labels.tolist()] == first
    ds = data(pack())
    assert [label for _, label in ds] == first
    shared = redox.DataLoader(ds)  # epochs are the data set's
    assert [n for _, labels in shared for n in labels.tolist()] == second
    assert ds.state_dict()["epoch"] == 1


def test_transforms_and_collation(pack: Any) -> None:
    loader = redox.DataLoader(data(pack(), transform=lambda x: x.float()))
    images, _ = next(iter(loader))
    assert images.dtype == torch.float32
    listed = next(iter(redox.DataLoader(data(pack()), collate_fn=list)))
    assert [number_of(image) for image, _ in listed] == [label for _, label in listed]
    whole = next(iter(redox.DataLoader(data(pack(), batched=True, transform=lambda b: (b[1], b[0])))))
    assert number_of(whole[1][0]) == whole[0][0]


def test_stats(pack: Any) -> None:
    loader = redox.DataLoader(data(pack()))
    for _ in range(2):
        for _ in loader:
            pass
    stats = loader.stats()
    assert stats["epoch"]["samples"] == 1000
    assert stats["epoch"]["batches"] == 63
    assert stats["total"]["samples"] == 2000
    with redox.open(pack()) as d:
        assert stats["epoch"]["chunks_read"] <= d.info.chunks <= stats["total"]["chunks_read"]
    names = "samples batches bytes_delivered chunks_read reads bytes_read redirected padded skipped"
    names += " resident_bytes resident_peak"
    names += " wait_s wait_storage_s wait_peer_s wait_decode_s peer_bytes_in peer_bytes_out peer_late peer_fallback vif"
    for part in ("epoch", "total"):
        assert set(names.split()) <= set(stats[part]), part


def test_padding_is_counted(pack: Any) -> None:
    padded = 0
    for rank in range(3):
        ds = data(pack(997), rank=rank, world_size=3, nodes=1)
        list(ds)
        padded += ds.stats()["epoch"]["padded"]
    assert padded == 2


@pytest.mark.parametrize(
    "options", [{"batch_size": 8}, {"shuffle": True}, {"sampler": [1]}, {"batch_sampler": [[1]]}, {"drop_last": True}]
)
def test_what_the_data_set_decides_is_refused(pack: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        redox.DataLoader(data(pack()), **options)


def test_other_data_sets_are_refused(pack: Any) -> None:
    with pytest.raises(TypeError, match="RedoxDataset"):
        redox.DataLoader([1, 2, 3])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="collate_fn"):
        redox.DataLoader(data(pack(), batched=True), collate_fn=list)
