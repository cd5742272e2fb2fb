"""RedoxDataset under torch's own DataLoader: samples, transforms, collation, memory."""

from __future__ import annotations

import gc
import itertools
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redox
import torch
from conftest import number_of, pixels, write
from torch.utils.data import DataLoader, IterableDataset


def data(path: str, batch_size: int = 16, **options: Any) -> redox.RedoxDataset:
    return redox.RedoxDataset(path, batch_size=batch_size, **options)


# -- samples -----------------------------------------------------------------------------------------------------------


def test_samples_are_what_was_packed(pack: Any) -> None:
    image, label = next(iter(data(pack())))
    assert isinstance(image, torch.Tensor)
    assert type(label) is int
    assert number_of(image) == label
    sample = next(iter(data(pack(300, "dict"))))
    assert isinstance(sample, dict)
    assert list(sample) == ["image", "label", "text"]
    assert sample["text"] == f"sample {sample['label']}"
    assert isinstance(next(iter(data(pack(300, "scalar")))), torch.Tensor)
    ragged = next(iter(data(pack(300, "ragged"))))
    assert type(ragged["data"]) is bytes
    assert ragged["data"].startswith(b"%d:" % ragged["meta"]["i"])


def test_tensors_of_all_dtypes(tmp_path: Path) -> None:
    dtypes = [
        "bool",
        "uint8",
        "int8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "float16",
        "float32",
        "float64",
    ]
    dtypes += ["bfloat16", "complex64", "complex128"]
    values = {name: torch.arange(6).reshape(2, 3).to(getattr(torch, name)) for name in dtypes}
    path = write(tmp_path / "d", [values] * 5)
    for batched in (False, True):
        got = next(iter(data(path, 5, batched=batched)))
        for name, value in values.items():
            assert got[name].dtype == value.dtype
            assert torch.equal(got[name][0] if batched else got[name], value), name


def test_images(image_folder: str) -> None:
    pil = pytest.importorskip("PIL.Image")
    seen = set()
    for picture, label in data(image_folder, 8):
        assert isinstance(picture, pil.Image)
        i = picture.getpixel((0, 0))[0]
        assert picture.getpixel((0, 0)) == (i, 2 * i, 3 * i)
        assert label == i % 4
        seen.add(i)
    assert seen == set(range(40))
    encoded, _ = next(iter(data(image_folder, 8, decode=False)))
    assert encoded.startswith(b"\x89PNG")
    pictures, labels = next(iter(data(image_folder, 8, batched=True)))
    assert [p.size for p in pictures] == [(5, 4)] * 8
    assert labels.shape == (8,)


def test_transforms(pack: Any) -> None:
    ds = data(pack(), transform=lambda x: x.float() / 2, target_transform=lambda y: -y)
    image, label = next(iter(ds))
    assert number_of((image * 2).to(torch.uint8)) == -label
    scalar = data(pack(300, "scalar"), transform=number_of)
    assert sorted(scalar) == list(range(300))
    dicts = data(pack(300, "dict"), transform=lambda d: {**d, "twice": 2 * d["label"]})
    assert all(d["twice"] == 2 * d["label"] for d in dicts)
    whole = data(pack(), batched=True, transform=lambda b: (b[0].float(), b[1]))
    assert next(iter(whole))[0].dtype == torch.float32


def test_with_index_is_last(pack: Any) -> None:
    for batched in (False, True):
        assert len(next(iter(data(pack(), with_index=True, batched=batched)))) == 3
        assert list(next(iter(data(pack(300, "dict"), with_index=True, batched=batched))))[-1] == "__index__"
        image, index = next(iter(data(pack(300, "scalar"), with_index="source", batched=batched)))
        assert number_of(image[0] if batched else image) == (index[0] if batched else index)
    keys = next(iter(data(pack(), with_index="key", batched=True)))[2]
    assert len(keys) == 16
    assert all(isinstance(key, str) for key in keys)


def test_whole_batches(pack: Any) -> None:
    seen = 0
    for images, labels in DataLoader(data(pack(997), batched=True), batch_size=None):
        assert images.dtype == torch.uint8
        assert images.shape[1:] == (3, 8, 8)
        assert labels.dtype == torch.int64
        assert [number_of(image) for image in images] == labels.tolist()
        seen += len(labels)
    assert seen == 997
    ragged = next(iter(data(pack(300, "ragged"), batched=True)))
    assert [type(column) for column in ragged.values()] == [list, list, list]


# -- DataLoader --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 15, 16, 997])
@pytest.mark.parametrize("drop_last", [False, True])
def test_lengths(pack: Any, n: int, drop_last: bool) -> None:
    ds = data(pack(n), drop_last=drop_last)
    loader = DataLoader(ds, batch_size=16)
    assert len(list(loader)) == len(loader) == len(redox.DataLoader(ds))
    assert sum(1 for _ in ds) == len(ds)
    batched = DataLoader(data(pack(n), drop_last=drop_last, batched=True), batch_size=None)
    assert len(list(batched)) == len(batched)
    assert len(list(DataLoader(data(pack(n)), batch_size=16, drop_last=True))) == n // 16


def test_another_batch_size_is_refused(pack: Any) -> None:
    with pytest.raises(ValueError, match=r"batch_size=32 of the DataLoader is not batch_size=16"):
        next(iter(DataLoader(data(pack()), batch_size=32)))
    with pytest.raises(ValueError, match="batch_size=1 of the DataLoader"):
        next(iter(DataLoader(data(pack()))))
    with pytest.raises(ValueError, match="batch_size=None"):
        next(iter(DataLoader(data(pack(), batched=True), batch_size=16)))
    assert len(list(DataLoader(data(pack()), batch_size=None))) == 1000


def test_custom_collate_and_chains(pack: Any) -> None:
    ds = data(pack())
    for batch in DataLoader(ds, batch_size=16, collate_fn=list):
        assert all(number_of(image) == label for image, label in batch)

    class Doubled(IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Any:
            return itertools.chain.from_iterable((sample, sample) for sample in ds)

    assert sum(len(labels) for _, labels in DataLoader(Doubled(), batch_size=10)) == 2000


def test_two_live_iterators_are_independent(pack: Any) -> None:
    reference = [[label for _, label in ds] for ds in [data(pack())] for _ in range(2)]
    ds = data(pack())
    first, second = iter(ds), iter(ds)
    pairs = list(zip(first, second, strict=True))
    assert [[s[1] for s in column] for column in zip(*pairs, strict=True)] == [reference[0], [p[1][1] for p in pairs]]
    assert sorted(p[1][1] for p in pairs) == list(range(1000))
    assert [p[1][1] for p in pairs] == _epoch(pack(), 1)


def _epoch(path: str, epoch: int) -> list[int]:
    ds = data(path)
    ds.set_epoch(epoch)
    return [label for _, label in ds]


@pytest.mark.parametrize("options", [{"batch_size": 1}, {"batch_size": 50}, {"batch_size": 7, "batched": True}])
def test_threads_that_share_an_iterator_share_the_epoch(pack: Any, options: dict[str, Any]) -> None:
    iterator = iter(redox.RedoxDataset(pack(), with_index=True, **options))
    got: list[int] = []

    def consume() -> None:
        for *_, index in iterator:
            got.extend(index.tolist() if options.get("batched") else [index])

    threads = [threading.Thread(target=consume) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == list(range(1000))


def test_an_epoch_reads_what_is_stored(pack: Any) -> None:
    ds = redox.RedoxDataset(pack(layout="ragged"), batch_size=256)
    assert sum(1 for _ in ds) == 1000
    epoch = ds.stats()["epoch"]
    assert epoch["reads"] == epoch["chunks_read"] == ds.info.chunks
    assert epoch["bytes_read"] == ds.info.stored_bytes == redox.simulate(ds.path, batch_size=256).read_bytes


def test_break_ten_times(pack: Any) -> None:
    ds = data(pack())
    loader = DataLoader(ds, batch_size=16)
    for epoch in range(10):
        got = []
        for _, labels in loader:
            got += labels.tolist()
            if len(got) == 160:
                break
        assert got == _epoch(pack(), epoch)[:160]
    assert ds.stats()["total"]["samples"] >= 1600


# -- memory ------------------------------------------------------------------------------------------------------------

VIEWS = {
    "tensor": lambda t: t,
    "slice": lambda t: t[1:3],
    "row": lambda t: t[5],
    "detach": lambda t: t.detach(),
    "numpy": lambda t: t.numpy(),
    "numpy slice": lambda t: t.numpy()[2:, ::2],
    "reshape": lambda t: t.view(-1),
    "unbind": lambda t: t.unbind(0)[7],
    "memoryview": lambda t: memoryview(t.numpy()),
    "transpose": lambda t: t.transpose(0, 1)[0],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("batched", [False, True])
def test_views_outlive_their_batches(pack: Any, view: str, batched: bool) -> None:
    ds = data(pack(), batched=batched, with_index=True)
    loader = DataLoader(ds, batch_size=None if batched else 16)
    kept = []
    for epoch in range(2):
        ds.set_epoch(epoch)
        for images, *_ in loader:
            kept.append((VIEWS[view](images), VIEWS[view](images.clone())))
    del images, loader, ds
    gc.collect()
    list(data(pack(), batched=True))
    for there, copy in kept:
        np.testing.assert_array_equal(np.asarray(there), np.asarray(copy))


def test_a_trainer_that_keeps_everything(pack: Any) -> None:
    kept = list(DataLoader(data(pack()), batch_size=16)) + list(data(pack()))
    for batch in kept[:62]:
        assert [number_of(image) for image in batch[0]] == batch[1].tolist()
    for image, label in kept[63:]:
        assert number_of(image) == label


def test_a_trainer_that_edits_in_place(pack: Any) -> None:
    for _ in range(2):
        for images, labels in DataLoader(data(pack()), batch_size=16):
            assert [number_of(image) for image in images] == labels.tolist()
            images.zero_()
            labels.fill_(-1)


def test_slots_come_back_without_the_collector(pack: Any) -> None:
    gc.disable()
    try:
        for loader in (
            DataLoader(data(pack()), batch_size=16),
            redox.DataLoader(data(pack())),
            DataLoader(data(pack(), batched=True), batch_size=None),
            DataLoader(data(pack(300, "dict")), batch_size=16),
        ):
            addresses = set()
            for _ in range(3):
                for batch in loader:
                    images = batch["image"] if isinstance(batch, dict) else batch[0]
                    addresses.add(images.data_ptr())
            del batch, images
            assert len(addresses) <= 7  # the same few slots again and again, no fresh memory
    finally:
        gc.enable()


def test_borrowed_batches(pack: Any) -> None:
    addresses = set()
    seen: list[int] = []
    for images, labels in DataLoader(data(pack(), batched=True, borrow=True), batch_size=None):
        assert [number_of(image) for image in images] == labels.tolist()
        seen += labels.tolist()
        addresses.add(images.data_ptr())
    assert sorted(seen) == list(range(1000))
    assert len(addresses) <= 7


def test_a_borrowed_batch_kept_too_long_is_no_crash(pack: Any) -> None:
    kept = list(data(pack(), batched=True, borrow=True))
    assert all(images.shape[1:] == (3, 8, 8) for images, _ in kept)
    assert sum(int(images.sum()) for images, _ in kept) >= 0


def test_pixels_are_as_packed(pack: Any) -> None:
    for image, label in data(pack()):
        np.testing.assert_array_equal(image.numpy(), pixels(label))


@pytest.mark.parametrize("size", [90, 96])
def test_epochs_that_are_kept_whole(pack: Any, size: int) -> None:
    ds = data(pack(size))  # six batches, as many as there are slots; the last one may be short
    kept = [list(DataLoader(ds, batch_size=16)) for _ in range(3)]
    for epoch in kept:
        assert [len(labels) for _, labels in epoch] == [16] * 5 + [size - 80]
        for images, labels in epoch:
            assert [number_of(image) for image in images] == labels.tolist()


@pytest.mark.parametrize("large", [False, True])
def test_ctrl_c_loses_no_batch(pack: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool) -> None:
    """It may come right after the library has given a batch, or the end of the epoch."""
    if large:
        with redox.Writer(tmp_path / "x", fields={"x": "bytes", "label": "int"}) as writer:
            for number in range(100):
                writer.write({"x": bytes([number]) * 40_000, "label": number})
    path = str(tmp_path / "x") if large else pack(100)

    def labels(batch: Any) -> list[int]:
        found: list[int] = (batch["label"] if large else batch[1]).tolist()
        return found

    whole = [label for batch in data(path, batched=True) for label in labels(batch)]
    name = "next_parts" if large else "acquire"
    real, calls = getattr(redox._native, name), 0

    def interrupted(*arguments: Any) -> int:
        nonlocal calls
        status: int = real(*arguments)
        calls += 1
        if calls % 3 == 1 and status in (redox._native.OK, redox._native.END_OF_EPOCH):
            raise KeyboardInterrupt
        return status

    monkeypatch.setattr(redox._native, name, interrupted)
    ds, seen = data(path, batched=True), []
    batches = iter(ds)
    for _ in range(60):
        try:
            seen += labels(next(batches))
            assert ds.state_dict()["position"] == len(seen)
        except KeyboardInterrupt:
            continue
        except StopIteration:
            break
    assert seen == whole
