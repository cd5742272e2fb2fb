"""Strings of a batch: made in the trainer out of the engine's memory, and lists of bytes and str all the same."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import redox
from conftest import write

torch = pytest.importorskip("torch")
DataLoader = torch.utils.data.DataLoader
B = 16


def sample(i: int) -> dict[str, Any]:
    return {
        "data": b"%d:" % i + bytes([i % 251]) * (i * 37 % 20000),
        "text": f"{i}" + "ä" * (i % 5),
        "maybe": None if i % 3 == 0 else f"m{i}",
        "meta": {"i": i, "l": [i] * (i % 3)},
        "empty": b"",
        "label": i,
    }


KINDS = {"data": "bytes", "text": "str", "maybe": "str?", "meta": "json", "empty": "bytes", "label": "int"}


@pytest.fixture(scope="module")
def path(tmp_path_factory: Any) -> str:
    folder = tmp_path_factory.mktemp("strings") / "d.redox"
    return write(folder, map(sample, range(300)), fields=KINDS, chunk_size="64kb")


@pytest.fixture(scope="module")
def tuples(tmp_path_factory: Any) -> str:
    folder = tmp_path_factory.mktemp("strings") / "t.redox"
    return write(folder, ((b"%d" % i * 50, f"{i}", i) for i in range(300)), chunk_size="4kb")


@pytest.fixture
def crossed(monkeypatch: Any) -> list[Any]:
    """What was made in this process of references."""
    from redox import crossing

    seen: list[Any] = []
    real = crossing.remade

    @functools.wraps(real)  # pickles as the real one
    def counting(*arguments: Any) -> Any:
        seen.append(real(*arguments))
        return seen[-1]

    monkeypatch.setattr(crossing, "remade", counting)
    return seen


def check_types(batch: Any) -> None:
    """Nothing but what PyTorch's own collation would give."""
    values = batch.values() if isinstance(batch, dict) else batch
    for value in values:
        assert type(value) in (list, tuple, dict) or isinstance(value, torch.Tensor)
        if type(value) in (list, tuple):
            assert {type(item) for item in value} <= {bytes, str, type(None), dict, torch.Tensor}


def same(ours: Any, theirs: Any) -> None:
    for x, y in zip(ours, theirs, strict=True):
        check_types(x)
        assert repr(x) == repr(y)


NAMES = ["data", "text", "empty", "label"]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("way", ["plain", "redox", "batched", "batched-redox", "map", "subset", "redirect"])
def test_lists_cross_as_references(path: str, way: str, workers: int, crossed: list[Any]) -> None:
    def loader(count: int) -> Any:
        options: dict[str, Any] = {"fields": NAMES, "shuffle_seed": 5, "with_index": True}
        if way in ("map", "subset", "redirect"):
            ds = redox.MapDataset(path, redirect=way == "redirect", **options)
            whole = torch.utils.data.Subset(ds, range(10, 290)) if way == "subset" else ds
            return DataLoader(whole, B, num_workers=count)
        ds = redox.RedoxDataset(path, batch_size=B, batched="batched" in way, **options)
        if "redox" in way:
            return redox.DataLoader(ds, num_workers=count)
        return DataLoader(ds, None if ds.batched else B, num_workers=count)

    expected = list(loader(0))
    assert crossed == []
    same(loader(workers), expected)
    assert len(crossed) == 2 * len(expected)  # but for the empty ones


@pytest.mark.parametrize("workers", [0, 2])
def test_tuples_of_tuples(tuples: str, workers: int, crossed: list[Any]) -> None:
    def lists(ds: Any, **options: Any) -> Any:
        return [torch.utils.data.default_collate([tuple(s) for s in batch]) for batch in DataLoader(ds, B, **options)]

    ds = redox.RedoxDataset(tuples, batch_size=B)
    wanted = lists(ds, collate_fn=list)
    for made in (DataLoader(ds, B, num_workers=workers), redox.DataLoader(ds, num_workers=workers)):
        ds.set_epoch(0)
        same(made, wanted)
    assert len(crossed) == (4 * len(wanted) if workers else 0)


def test_json_and_missing_values(path: str) -> None:
    for fields in (["meta"], ["maybe", "label"], ["data", "meta", "maybe"]):
        ds = redox.RedoxDataset(path, batch_size=B, batched=True, fields=fields)
        expected = list(DataLoader(ds, None))
        ds.set_epoch(0)
        same(DataLoader(ds, None, num_workers=2), expected)


def test_what_users_do_to_a_batch_stays_done(path: str) -> None:
    def upper(batch: Any) -> Any:
        batch["text"][0] = "first"
        batch["data"].reverse()
        return batch

    def collate(samples: list[Any]) -> Any:
        batch = torch.utils.data.default_collate(samples)
        batch["text"] = [text + "!" for text in batch["text"]]
        batch["data"] = batch["data"][1:]
        return batch

    for options, torch_options in (
        ({"batched": True, "transform": upper}, {"batch_size": None}),
        ({}, {"batch_size": B, "collate_fn": collate}),
        ({"batched": True}, {"batch_size": None, "collate_fn": upper}),
    ):
        ds = redox.RedoxDataset(path, batch_size=B, fields=["data", "text"], **options)
        expected = list(DataLoader(ds, **torch_options))
        ds.set_epoch(0)
        same(DataLoader(ds, num_workers=2, **torch_options), expected)


@pytest.mark.parametrize("limit", ["2mb", "auto"])
def test_a_trainer_that_keeps_tensors_beside_strings(path: str, limit: str, crossed: list[Any]) -> None:
    ds = redox.RedoxDataset(path, batch_size=B, fields=["data", "label"], memory_limit=limit)
    for _ in range(3):
        kept = list(DataLoader(ds, B, num_workers=2, prefetch_factor=4))
        for batch in kept:
            for data, label in zip(batch["data"], batch["label"].tolist(), strict=True):
                assert data == sample(label)["data"]
        assert sorted(label for batch in kept for label in batch["label"].tolist()) == list(range(300))


def test_breaks_give_the_memory_back(path: str) -> None:
    ds = redox.RedoxDataset(path, batch_size=B, fields=["data"], memory_limit="2mb")
    for persistent in (False, True):
        loader = DataLoader(ds, B, num_workers=2, persistent_workers=persistent)
        for _ in range(10):
            for _batch in loader:
                break
        ds.set_epoch(0)
        assert sum(len(batch["data"]) for batch in loader) == 300


def test_a_dataset_around_it_sees_samples(path: str) -> None:
    """Only where PyTorch's loader itself asks are samples left out."""

    class Lengths(torch.utils.data.IterableDataset):  # type: ignore[misc,name-defined]
        def __init__(self, ds: Any) -> None:
            self.ds = ds

        def __iter__(self) -> Any:
            return ((len(s["data"]), s["text"]) for s in self.ds)

    class Texts(redox.MapDataset):
        def __getitems__(self, indices: Any) -> list[Any]:
            return [s["text"] for s in super().__getitems__(indices)]

    for workers in (0, 2):
        ds = redox.RedoxDataset(path, batch_size=B, shuffle=False)
        seen = list(DataLoader(Lengths(ds), B, num_workers=workers))
        assert sum(len(texts) for _, texts in seen) == 300
        assert seen[0][0].tolist() == [len(sample(int(text.rstrip("ä")))["data"]) for text in seen[0][1]]
        texts = [text for batch in DataLoader(Texts(path), B, num_workers=workers) for text in batch]
        assert sorted(texts) == sorted(sample(i)["text"] for i in range(300))


def test_a_fetcher_that_takes_other_batches(path: str) -> None:
    """A batch that is not taken whole is collated out of samples."""
    from redox.sample import Place
    from redox.values import TorchMaker

    ds = redox.RedoxDataset(path, batch_size=B, shuffle=False, fields=["text", "label"])
    presenter = ds.presenter(TorchMaker())
    one = ds.session.new_pass()
    first, second = (one.next() for _ in range(2))
    assert first is not None
    assert second is not None
    a, b = Place(presenter, first), list(presenter.finished(second))
    wanted = [{"text": s["text"], "label": s["label"]} for s in redox.RedoxDataset(path, batch_size=B, shuffle=False)][
        :20
    ]
    for batch, count in (([a] * 16 + b[:4], 20), ([a] * 10, 10)):
        got = torch.utils.data.default_collate(batch)
        assert repr(got) == repr(torch.utils.data.default_collate(wanted[:count]))
