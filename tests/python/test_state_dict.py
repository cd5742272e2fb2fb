"""Resuming: a state saved at every step goes on with exactly the rest, on other ranks and batch sizes too."""

from __future__ import annotations

import copy
import json
import pickle
import time
from typing import Any

import pytest
import redox
import torch
from torch.utils.data import DataLoader

N = 203


def data(path: str, batch_size: int = 16, **options: Any) -> redox.RedoxDataset:
    return redox.RedoxDataset(path, batch_size=batch_size, **options)


def labels(samples: Any) -> list[int]:
    return [label for _, label in samples]


def through_json(state: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(state)
    assert len(text) < 4096
    return json.loads(text)  # type: ignore[no-any-return]


def test_what_is_in_it(pack: Any) -> None:
    ds = data(pack(N))
    state = ds.state_dict()
    assert {
        "version",
        "dataset",
        "seed",
        "shuffle",
        "epoch",
        "position",
        "partitions",
        "window",
        "keep",
        "plan_hash",
    } <= set(state)
    assert (state["epoch"], state["position"], state["dataset"]) == (0, 0, ds.fingerprint)


@pytest.mark.parametrize("other_batch", [16, 5])
def test_at_every_step(pack: Any, other_batch: int) -> None:
    path = pack(N)
    order = labels(data(path))
    after = labels(second_epoch(path))
    loader = DataLoader(ds := data(path), batch_size=16)
    states = [ds.state_dict()]
    for _ in loader:
        states.append(through_json(ds.state_dict()))
    for step, state in enumerate(states):
        assert state["position"] == min(N, step * 16)
        again = data(path, other_batch)
        again.load_state_dict(state)
        assert again.state_dict() == state
        rest = labels(again)
        assert rest == (order[step * 16 :] or after)
        if order[step * 16 :]:
            assert labels(again) == after


def second_epoch(path: str) -> redox.RedoxDataset:
    ds = data(path)
    ds.set_epoch(1)
    return ds


def test_at_every_sample_of_one_rank(pack: Any) -> None:
    path = pack(N)
    order = labels(data(path))
    ds = data(path)
    iterator = iter(ds)
    for taken in range(1, 60):
        next(iterator)
        state = ds.state_dict()
        assert state["position"] == taken
        if taken % 7 == 0:
            again = data(path, 11)
            again.load_state_dict(state)
            assert labels(again) == order[taken:]


def test_after_a_break(pack: Any) -> None:
    path = pack(N)
    order = labels(data(path))
    ds = data(path)
    got = []
    for batch in DataLoader(ds, batch_size=16):
        got += batch[1].tolist()
        if len(got) == 48:
            break
    state = ds.state_dict()
    assert state["position"] == 48
    again = data(path)
    again.load_state_dict(state)
    assert got + labels(again) == order
    assert labels(ds) == labels(second_epoch(path))  # a new `for` is the next epoch


def test_the_boundary(pack: Any) -> None:
    path = pack(N)
    ds = data(path)
    labels(ds)
    state = ds.state_dict()
    assert (state["epoch"], state["position"]) == (0, N)
    again = data(path)
    again.load_state_dict(state)
    again.set_epoch(0)
    assert labels(again) == []
    assert labels(again) == labels(second_epoch(path))
    again.load_state_dict(state)
    assert labels(again) == labels(second_epoch(path))


def test_the_boundary_with_drop_last(pack: Any) -> None:
    ds = data(pack(N), drop_last=True)
    loader = DataLoader(ds, batch_size=16)
    for step, _ in enumerate(loader, 1):
        if step == len(loader):
            assert ds.state_dict()["position"] == N  # nothing is left, though the loop has not noticed yet
    again = data(pack(N))
    again.load_state_dict(ds.state_dict())
    assert labels(again) == labels(second_epoch(pack(N)))


def test_set_epoch_keeps_the_position_of_the_same_epoch(pack: Any) -> None:
    path = pack(N)
    ds = data(path)
    iterator = iter(DataLoader(ds, batch_size=16))
    next(iterator)
    state = ds.state_dict()
    again = data(path)
    again.load_state_dict(state)
    again.set_epoch(0)
    assert labels(again) == labels(data(path))[16:]
    again.load_state_dict(state)
    again.set_epoch(5)
    assert len(labels(again)) == N
    assert len(again) == N


@pytest.mark.parametrize("worlds", [(1, 2), (2, 1), (2, 3), (3, 2)])
def test_on_another_number_of_ranks(pack: Any, worlds: tuple[int, int]) -> None:
    path = pack(N)
    before, behind = worlds

    def ranks(size: int) -> list[redox.RedoxDataset]:
        return [data(path, 8, rank=r, world_size=size, nodes=1, pad=False) for r in range(size)]

    for steps in (0, 1, 4):
        first = ranks(before)
        got = [
            label for ds in first for batch in _some(DataLoader(ds, batch_size=8), steps) for label in batch[1].tolist()
        ]
        states = [ds.state_dict(batches=steps) for ds in first]
        assert all(state == states[0] for state in states)
        for rank in ranks(behind):
            rank.load_state_dict(through_json(states[behind % before]))
            got += labels(rank)
        assert sorted(got) == list(range(N))


def _some(loader: Any, steps: int) -> Any:
    return [batch for _, batch in zip(range(steps), loader, strict=False)]


def test_padding_after_a_resume_is_for_the_new_world(pack: Any) -> None:
    path = pack(N)
    first = data(path, 16)
    list(zip(range(32), first, strict=False))
    got = []
    for rank in range(4):
        ds = data(path, 8, rank=rank, world_size=4, nodes=1)
        ds.load_state_dict(first.state_dict(batches=2))
        got.append(labels(ds))
    assert {len(part) for part in got} == {-(-(N - 32) // 4)}
    assert len({label for part in got for label in part}) >= N - 32


def test_batches_counts_from_the_beginning_of_the_epoch(pack: Any) -> None:
    path = pack(N)
    ds = data(path)
    assert ds.state_dict(batches=3)["position"] == 48
    next(iter(DataLoader(ds, batch_size=16)))
    assert ds.state_dict(batches=3)["position"] == 48
    assert ds.state_dict(batches=13)["position"] == N
    again = data(path)
    again.load_state_dict(ds.state_dict(batches=3))
    assert again.state_dict(batches=4)["position"] == 64
    with pytest.raises(redox.StateError, match="from the beginning"):
        again.state_dict(batches=1)  # whoever counts from the resume is told
    with pytest.raises(ValueError, match="batches"):
        again.state_dict(batches=-1)


def test_several_ranks_can_stop_between_batches_only(pack: Any) -> None:
    ds = data(pack(N), 8, rank=0, world_size=2, nodes=1)
    iterator = iter(ds)
    next(iterator)
    with pytest.raises(redox.StateError, match="between batches"):
        ds.state_dict()
    list(zip(range(7), iterator, strict=False))
    assert ds.state_dict()["position"] == 16


@pytest.mark.parametrize(
    "options",
    [{"shuffle_seed": 1}, {"shuffle": False}, {"window": 3}, {"partitions": 3}, {"keep": "run"}, {"subset": (0, 100)}],
)
def test_another_order_is_refused(pack: Any, options: dict[str, Any]) -> None:
    state = data(pack(N)).state_dict()
    other = data(pack(N), **options)
    with pytest.raises(redox.StateError):
        other.load_state_dict(state)
    assert len(labels(other)) == (100 if "subset" in options else N)


def test_another_data_set_or_version_is_refused(pack: Any) -> None:
    state = data(pack(N)).state_dict()
    with pytest.raises(redox.StateError, match=state["dataset"]):
        data(pack(997)).load_state_dict(state)
    for wrong in (
        {},
        {**state, "version": 99},
        {**state, "position": -1},
        {**state, "position": N + 1},
        {**state, "epoch": "1"},
        None,
    ):
        with pytest.raises(redox.StateError):
            data(pack(N)).load_state_dict(wrong)  # type: ignore[arg-type]


def test_subset_states(pack: Any) -> None:
    options: dict[str, Any] = {"subset": list(range(0, 200, 3))}
    ds = data(pack(N), **options)
    order = labels(data(pack(N), **options))
    list(zip(range(32), ds, strict=False))
    again = data(pack(N), 5, **options)
    again.load_state_dict(ds.state_dict())
    assert labels(again) == order[32:]


def test_pickling_carries_the_place(pack: Any) -> None:
    ds = data(pack(N))
    ds.set_epoch(4)
    twin = pickle.loads(pickle.dumps(ds))
    assert labels(twin) == labels(ds)
    assert copy.deepcopy(ds).state_dict()["epoch"] == 5


@pytest.mark.parametrize("batched", [False, True])
def test_redox_loader(pack: Any, batched: bool) -> None:
    path = pack(N)
    order = labels(data(path))
    loader = redox.DataLoader(data(path, batched=batched))
    states = [loader.state_dict()]
    for batch in loader:
        assert isinstance(batch[0], torch.Tensor)
        states.append(through_json(loader.state_dict()))
    for step, state in enumerate(states[:-1]):
        again = redox.DataLoader(data(path, batched=batched))
        again.load_state_dict(state)
        assert [label for batch in again for label in batch[1].tolist()] == order[step * 16 :]


def test_restoring_is_quick(pack: Any) -> None:
    ds = data(pack())
    state = {**ds.state_dict(), "epoch": 1000, "position": 990}
    begun = time.monotonic()
    ds.load_state_dict(state)
    assert len(list(ds)) == 10
    assert time.monotonic() - begun < 1


def test_a_look_before_training_with_workers(pack: Any) -> None:
    ds = data(pack(N))
    next(iter(ds))  # epoch 0, in this process
    for k, _ in enumerate(DataLoader(ds, 16, num_workers=2), 1):
        assert ds.state_dict(batches=k) == {**ds.state_dict(batches=0), "position": min(16 * k, N)}
        assert ds.state_dict(batches=k)["epoch"] == 1
        with pytest.raises(redox.StateError, match="workers"):
            ds.state_dict()
    assert ds.stats()["epoch"]["samples"] == N


def test_words_after_an_epoch_with_workers(pack: Any) -> None:
    ds = data(pack(N))
    loader = DataLoader(ds, 16, num_workers=2, persistent_workers=True)
    for _ in loader:
        pass
    state = {**ds.state_dict(batches=3), "epoch": 7}
    ds.set_epoch(5)
    assert (ds.state_dict(batches=0)["epoch"], ds.state_dict(batches=2)["position"]) == (5, 32)
    assert ds.stats()["total"]["samples"] == N
    ds.load_state_dict(state)
    assert (ds.state_dict()["epoch"], ds.state_dict()["position"]) == (7, 48)
    for k, _ in enumerate(loader, 4):
        assert (ds.state_dict(batches=k)["epoch"], ds.state_dict(batches=k)["position"]) == (7, min(16 * k, N))


def test_workers_states_need_no_library_in_the_trainer(pack: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ds = data(pack(N))
    monkeypatch.setattr(redox.session.Session, "take", lambda _: pytest.fail("a loader was made"))
    loader = redox.DataLoader(ds, num_workers=1)
    for k, _ in enumerate(loader, 1):
        assert loader.state_dict()["position"] == ds.state_dict(batches=k)["position"] == min(16 * k, N)


def test_a_copy_counts_for_itself(pack: Any) -> None:
    ds = data(pack(N))
    first = labels(ds)
    twin = copy.copy(ds)
    twin.set_epoch(0)
    assert labels(twin) == first
    assert ds.state_dict()["epoch"] == 0
    assert labels(ds) != first
