"""torchdata's `StatefulDataLoader`: its states, with and without workers, go on with exactly the rest."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import redox
from redox.crew import Crew
from redox.part import Part
from test_state_dict import N, data, labels, second_epoch, through_json

stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader


def test_torchdata(pack: Any) -> None:
    path = pack(N)
    order = labels(data(path))
    loader = stateful(data(path), batch_size=16)
    states = [loader.state_dict()]
    for _ in loader:
        states.append(copy.deepcopy(loader.state_dict()))
    states.append(copy.deepcopy(loader.state_dict()))
    for step, state in enumerate(states):
        again = stateful(data(path), batch_size=16)
        again.load_state_dict(state)
        got = [label for batch in again for label in batch[1].tolist()]
        if step < len(states) - 2:
            assert got == order[step * 16 :]
            assert [label for batch in again for label in batch[1].tolist()] == labels(second_epoch(path))
        elif step == len(states) - 1:
            assert got == labels(second_epoch(path))


@pytest.mark.parametrize(("workers", "persistent"), [(1, False), (2, True), (3, False)])
def test_torchdata_restores_its_workers(pack: Any, workers: int, persistent: bool) -> None:
    path = pack(N)
    epochs = [labels(ds) for ds in [data(path)] for _ in range(4)]

    def loader() -> Any:
        return stateful(data(path), batch_size=16, num_workers=workers, persistent_workers=persistent)

    def rest(batches: Any) -> list[int]:
        return [label for batch in batches for label in batch[1].tolist()]

    def numbers_match(state: Any, epoch: int, step: int) -> None:
        again = loader()
        again.load_state_dict(state)
        assert rest(again) == (epochs[epoch][step * 16 :] or epochs[epoch + 1])
        assert rest(again) == epochs[epoch + (1 if epochs[epoch][step * 16 :] else 2)]

    first = loader()
    for epoch in range(2):
        for step, _ in enumerate(first, 1):
            if (epoch, step) in ((0, 1), (0, 7), (1, 5)):
                numbers_match(copy.deepcopy(first.state_dict()), epoch, step)
    # A restored one is saved and restored, in the same object, and goes on as the user says.
    second = loader()
    second.load_state_dict(numbered(first, 4))
    for step, _ in enumerate(second, 5):
        if step == 9:
            state = copy.deepcopy(second.state_dict())
            break
    second.load_state_dict(state)
    assert rest(second) == epochs[2][9 * 16 :]
    second.dataset.set_epoch(1)
    assert rest(second) == epochs[1]
    inner = state["_snapshot"]["_worker_snapshots"]["worker_0"]["dataset_state"]
    with pytest.raises(redox.StateError, match="only the loader that saved it"):
        data(path).load_state_dict(inner)
    with pytest.raises(redox.StateError, match="same number of workers"):
        Part.parse(inner, Crew(1, 0, workers + 1))


def numbered(loader: Any, steps: int) -> Any:
    """The state of a loader after so many batches of its next epoch."""
    for step, _ in enumerate(loader, 1):
        if step == steps:
            return copy.deepcopy(loader.state_dict())
    raise AssertionError


@pytest.mark.parametrize("workers", [0, 2])
def test_torchdata_beside_our_own_state(pack: Any, workers: int) -> None:
    path = pack(N)
    order = labels(data(path))
    ds = data(path)
    for step, _ in enumerate(stateful(ds, batch_size=16, num_workers=workers), 1):
        if step == 5:
            state = through_json(ds.state_dict(batches=5))
    for other in (0, 1, 3):
        again = data(path, 20)
        again.load_state_dict(state)
        got = [label for batch in stateful(again, batch_size=20, num_workers=other) for label in batch[1].tolist()]
        assert got == order[80:]
