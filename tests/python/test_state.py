"""States as arithmetic: shares, cursors, what a state must have. What the loaders make of them: test_resume.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redox.errors import StateError
from redox.state import Cursor, Share, parse_state

shares = st.builds(
    Share,
    size=st.integers(1, 500),
    batch_size=st.integers(1, 40),
    world=st.integers(1, 9),
    drop_last=st.booleans(),
    padded=st.booleans(),
)


@given(shares)
def test_ranks_get_the_epoch_and_nothing_else(share: Share) -> None:
    ranks = [
        Share(share.size, share.batch_size, share.world, r, share.drop_last, share.padded) for r in range(share.world)
    ]
    total = sum(rank.samples() for rank in ranks)
    if share.drop_last:
        assert total == share.size - share.size % share.step
    elif share.padded:
        assert len({rank.samples() for rank in ranks}) == 1
        assert 0 <= total - share.size < share.world
    else:
        assert total == share.size
        assert max(r.samples() for r in ranks) - min(r.samples() for r in ranks) <= 1


@given(shares, st.integers(0, 30))
def test_positions_grow_by_global_batches_to_the_end(share: Share, batches: int) -> None:
    position = share.after(0, batches)
    assert position == min(share.size, batches * share.step) or (share.drop_last and position == share.size)
    assert share.after(0, share.batches() + 1) == share.size


def test_without_a_word_every_iteration_is_the_next_epoch() -> None:
    cursor = Cursor(10)
    assert [cursor.begin() for _ in range(3)] == [(0, 0), (1, 0), (2, 0)]
    cursor.set_epoch(7)
    assert cursor.peek() == (7, 0)
    assert [cursor.begin() for _ in range(2)] == [(7, 0), (8, 0)]


def test_a_loaded_state_is_used_once() -> None:
    cursor = Cursor(10)
    cursor.load(3, 4)
    assert [cursor.begin() for _ in range(2)] == [(3, 4), (4, 0)]


def test_set_epoch_keeps_the_position_of_its_own_epoch_only() -> None:
    cursor = Cursor(10)
    cursor.load(3, 4)
    cursor.set_epoch(3)
    assert cursor.begin() == (3, 4)
    cursor.load(3, 4)
    cursor.set_epoch(5)
    assert cursor.begin() == (5, 0)


def test_a_used_up_epoch_goes_on_with_the_next() -> None:
    cursor = Cursor(10)
    cursor.load(3, 10)
    assert cursor.begin() == (4, 0)
    cursor.load(3, 10)
    cursor.set_epoch(3)
    assert cursor.begin() == (3, 10)  # empty, never a repetition
    assert cursor.begin() == (4, 0)


@pytest.mark.parametrize(
    "state",
    [
        None,
        [],
        {},
        {"version": 2, "dataset": "a", "epoch": 0, "position": 0},
        {"version": "1", "dataset": "a", "epoch": 0, "position": 0},
        {"version": 1, "dataset": "b", "epoch": 0, "position": 0},
        {"version": 1, "dataset": "a", "epoch": -1, "position": 0},
        {"version": 1, "dataset": "a", "epoch": 0, "position": 1.5},
        {"version": 1, "dataset": "a", "epoch": 0},
    ],
)
def test_a_state_that_does_not_fit_is_refused(state: object) -> None:
    with pytest.raises(StateError):
        parse_state(state, "a")


def test_a_foreign_state_names_both_data_sets() -> None:
    with pytest.raises(StateError, match=r"data set theirs.*data set ours"):
        parse_state({"version": 1, "dataset": "theirs", "epoch": 0, "position": 0}, "ours")
