"""Loading with DataLoader workers: the order, the epochs, the life of batches, the state."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import redox
from conftest import write

torch = pytest.importorskip("torch")
DataLoader = torch.utils.data.DataLoader
B = 32


@pytest.fixture
def data(pack: Any) -> Callable[..., Any]:
    """A data set of 1,000 `(pixels, number)` samples."""
    return lambda **options: redox.RedoxDataset(pack(), **{"batch_size": B, **options})


def plain(ds: Any, workers: int = 0, **options: Any) -> Any:
    """PyTorch's own loader, as a user would write it."""
    return DataLoader(ds, None if ds.batched else B, num_workers=workers, **options)


def labels(batches: Iterable[Any]) -> list[int]:
    """The numbers of the samples, after checking their pixels."""
    seen = []
    for images, numbers in batches:
        check(images, numbers)
        seen += numbers.tolist()
    return seen


def check(images: Any, numbers: Any) -> None:
    from conftest import pixels

    for image, number in zip(images.numpy(), numbers.tolist(), strict=True):
        assert (image == pixels(number)).all()


@pytest.fixture
def epochs(data: Any) -> list[list[int]]:
    """The first epochs without workers."""
    loader = plain(data())
    return [labels(loader) for _ in range(4)]


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_order_is_that_without_workers(data: Any, epochs: Any, workers: int, batched: bool) -> None:
    loader = plain(data(batched=batched), workers)
    assert [labels(loader) for _ in range(3)] == epochs[:3]
    assert len(loader) == 32


def test_epochs_go_on_with_another_number_of_workers(data: Any, epochs: Any) -> None:
    ds = data()
    assert [labels(plain(ds, workers)) for workers in (0, 2, 0, 1)] == epochs


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_start_methods(data: Any, epochs: Any, method: str) -> None:
    ds = data()
    ds.set_epoch(1)
    assert labels(plain(ds, 1, multiprocessing_context=method)) == epochs[1]


def test_fork_after_the_library_was_used_and_beside_a_live_iterator(data: Any, epochs: Any) -> None:
    ds = data()
    live = iter(plain(ds))
    first = next(live)
    assert labels(plain(data(), 2)) == epochs[0]
    assert labels([first, *live]) == epochs[0]


def test_persistent_workers_follow_set_epoch(data: Any, epochs: Any) -> None:
    ds = data()
    loader = plain(ds, 2, persistent_workers=True)
    assert [labels(loader) for _ in range(2)] == epochs[:2]
    ds.set_epoch(1)
    assert [labels(loader) for _ in range(2)] == epochs[1:3]


def test_break_then_again(data: Any, epochs: Any) -> None:
    for persistent in (False, True):
        ds = data()
        loader = plain(ds, 2, persistent_workers=persistent)
        for _ in range(5):
            for batch in loader:
                check(*batch)
                break
        ds.set_epoch(2)
        assert labels(loader) == epochs[2]


def test_two_live_iterators_are_independent(data: Any, epochs: Any) -> None:
    loader = plain(data(), 1)
    first, second = iter(loader), iter(loader)
    a, b = [], []
    for _ in range(32):
        a.append(next(first))
        b.append(next(second))
    assert sorted([labels(a), labels(b)]) == sorted(epochs[:2])


def test_two_data_sets_at_once(data: Any, pack: Any, epochs: Any) -> None:
    train, valid = data(subset=(0.0, 0.7)), data(subset=(0.7, 1.0))
    seen = labels(plain(train, 1))
    for x, y in zip(plain(train, 1), plain(valid, 1), strict=False):
        check(*x)
        check(*y)
    assert sorted(seen + labels(plain(valid, 1))) == list(range(1000))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_trainer_that_keeps_everything(data: Any, epochs: Any, workers: int) -> None:
    kept = list(plain(data(), workers))
    assert labels(kept) == epochs[0]


def test_a_trainer_that_edits_in_place(data: Any) -> None:
    ds = data(batched=True)
    for _ in range(3):
        for images, numbers in plain(ds, 2):
            check(images, numbers)
            images.zero_()
            numbers.fill_(-1)


def test_views_keep_the_batch(data: Any) -> None:
    views: list[Any] = [
        lambda t: t.numpy(), lambda t: t.detach(), lambda t: t[3:5], lambda t: t.view(-1), lambda t: t[0],
        lambda t: t.T, lambda t: memoryview(t.numpy()), lambda t: t.unbind()[-1],
    ]  # fmt: skip
    kept, wanted = [], []
    for i, (images, _) in enumerate(plain(data(batched=True), 2)):
        view = views[i % len(views)](images.flatten(1))
        kept.append(view)
        wanted.append(torch.as_tensor(np.asarray(view)).clone())
        del images, view
    assert all(torch.equal(torch.as_tensor(np.asarray(view)), copy) for view, copy in zip(kept, wanted, strict=True))


def test_a_worker_that_keeps_its_samples(data: Any, epochs: Any) -> None:
    class Keeper(torch.utils.data.IterableDataset):  # type: ignore[misc,name-defined]
        def __init__(self, ds: Any) -> None:
            self.ds = ds

        def __iter__(self) -> Any:
            kept = list(self.ds)
            yield from kept

    assert labels(DataLoader(Keeper(data()), B, num_workers=1)) == epochs[0]


@pytest.fixture(scope="module")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Any]:
    """A loader of 60 samples for some workers, with as little memory as the engine says that it needs."""
    samples = ((np.zeros(25_000, "f4"), i) for i in range(60))
    path = write(tmp_path_factory.mktemp("tight") / "x.redox", samples, chunk_size="256kb")

    def loader(workers: int, limit: int) -> Any:
        options: dict[str, Any] = {"batch_size": 5, "memory_limit": limit, "timeout": 10.0}
        return DataLoader(redox.RedoxDataset(path, transform=len, **options), 5, num_workers=workers)

    with pytest.raises(redox.MemoryLimitError) as caught:
        next(iter(loader(1, 1024)))
    named = re.search(r"but (\d+) are", str(caught.value))
    assert named
    limit = int(named[1])
    return lambda workers: loader(workers, limit)


@pytest.mark.parametrize("workers", [2, 3, 5])
def test_as_little_memory_as_is_named(tight: Callable[[int], Any], workers: int) -> None:
    """Each worker keeps the batch that its samples come from until the next one comes; there are two slots."""
    assert sum(len(labels) for _, labels in tight(workers)) == 60


def test_transforms_and_collation(data: Any) -> None:
    def doubled(image: Any) -> Any:
        return image.float() * 2

    expected = list(plain(data(transform=doubled)))
    for ours, theirs in zip(plain(data(transform=doubled), 2), expected, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("options", [{}, {"memory_limit": "4mb"}])
def test_large_results_of_transforms(data: Any, options: Any) -> None:
    def enlarged(image: Any) -> Any:
        return image.float().repeat(1, 2, 4)  # 6 KB a sample: collated in the engine's memory, while there is room

    expected = list(plain(data(transform=enlarged)))
    loader = plain(data(transform=enlarged, **options), 2)
    for keeping in (False, True):  # the second time, an epoch of them is more than there is room for
        loader.dataset.set_epoch(0)
        seen = []
        for ours, theirs in zip(loader, expected, strict=True):
            assert all(torch.equal(x, y) for x, y in zip(ours, theirs, strict=True))
            if keeping:
                seen.append(ours)
        for ours, theirs in zip(seen, expected, strict=False):
            assert all(torch.equal(x, y) for x, y in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("workers", [1, 2])
def test_redirection_gives_the_same_batches(pack: Any, workers: int) -> None:
    def epochs_of(count: int) -> list[list[int]]:
        ds = redox.MapDataset(pack(), redirect=True, batch_size=B)
        loader = DataLoader(ds, B, shuffle=True, num_workers=count)
        return [labels(loader) for _ in range(2)]

    assert epochs_of(workers) == epochs_of(0)


def test_variable_fields_and_keys(pack: Any) -> None:
    for layout in ("dict", "ragged"):
        for with_index in (False, "source", "key"):
            ds = redox.RedoxDataset(pack(200, layout), batch_size=16, batched=True, with_index=with_index)
            ds.set_epoch(0)
            expected = list(DataLoader(ds, None))
            ds.set_epoch(0)
            assert repr(list(DataLoader(ds, None, num_workers=2))) == repr(expected)


def test_state_counts_what_was_received(data: Any, epochs: Any) -> None:
    loader = redox.DataLoader(data(), num_workers=2)
    assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (0, 0)
    assert labels(loader) == epochs[0]
    assert loader.state_dict()["position"] == 1000
    batches = iter(loader)
    assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (1, 0)
    labels([next(batches) for _ in range(5)])
    state = json.loads(json.dumps(loader.state_dict()))
    assert (state["epoch"], state["position"]) == (1, 5 * B)
    for workers, batch_size in ((0, 20), (1, B), (3, 50)):
        again = redox.DataLoader(data(batch_size=batch_size), num_workers=workers)
        again.load_state_dict(state)
        assert labels(again) == epochs[1][5 * B :]
        assert labels(again) == epochs[2]


def test_state_of_the_data_set_needs_the_count(data: Any, epochs: Any) -> None:
    ds = data()
    for _ in plain(ds, 2):
        break
    with pytest.raises(redox.StateError, match=r"batches="):
        ds.state_dict()
    state = ds.state_dict(batches=3)
    again = data()
    again.load_state_dict(state)
    assert labels(plain(again, 1)) == epochs[0][3 * B :]


def test_counters(data: Any) -> None:
    loader = redox.DataLoader(data(), num_workers=2)
    labels(loader)
    stats = loader.stats()["epoch"]
    assert (stats["samples"], stats["batches"]) == (1000, 32)
    assert stats["chunks_read"] == redox.open(loader.dataset.path).info.chunks
