"""`redox.split`: parts that do not overlap and leave nothing out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redox
from hypothesis import given
from hypothesis import strategies as st
from redox.splitting import _ends


@pytest.fixture(scope="module")
def shuffled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("split") / "x"
    redox.pack(list(range(1000)), path, chunk_size="1kb")
    return path


@pytest.fixture(scope="module")
def sorted_(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("split") / "y"
    redox.pack(list(range(1000)), path, chunk_size="1kb", shuffle=False)
    return path


def test_shuffled_data_sets_are_cut(shuffled: Path) -> None:
    assert redox.split(shuffled, [0.9, 0.1]) == [(0, 900), (900, 1000)]
    assert redox.split(shuffled, [0.5, 0.2]) == [(0, 500), (500, 700)]
    assert redox.split(shuffled, [700, 300]) == [(0, 700), (700, 1000)]
    assert redox.split(shuffled, [1.0]) == [(0, 1000)]


def test_random_splits(shuffled: Path, sorted_: Path) -> None:
    for path in (shuffled, sorted_):
        parts = [np.asarray(p) for p in redox.split(path, [0.8, 0.15, 0.05], seed=3)]
        assert [len(p) for p in parts] == [800, 150, 50]
        assert sorted(np.concatenate(parts).tolist()) == list(range(1000))
        assert all((np.diff(p) > 0).all() for p in parts)
        assert abs(parts[0].mean() - 500) < 30
        again = redox.split(path, [0.8, 0.15, 0.05], seed=3)
        assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))
        assert not np.array_equal(redox.split(path, [0.8], seed=4)[0], parts[0])


def test_data_in_order_wants_a_seed(sorted_: Path) -> None:
    with pytest.raises(ValueError, match="seed"):
        redox.split(sorted_, [0.9, 0.1])


@pytest.mark.parametrize(
    "sizes", [[], [0.9, 0.2], [-0.1], ["a"], [True], [1001], [600, 401], [0.0001, 0.9], [0, 5], [float("nan")]]
)
def test_wrong_sizes(shuffled: Path, sizes: Any) -> None:
    with pytest.raises(ValueError, match="sizes"):
        redox.split(shuffled, sizes)


@pytest.mark.parametrize("seed", [-1, "a", 1.5, True])
def test_wrong_seeds(shuffled: Path, seed: Any) -> None:
    with pytest.raises(ValueError, match="seed"):
        redox.split(shuffled, [0.5], seed=seed)


def test_the_parts_are_loaded_once_each(shuffled: Path) -> None:
    pytest.importorskip("torch")
    seen: list[int] = []
    for subset in [*redox.split(shuffled, [0.7, 0.3])]:
        ds = redox.RedoxDataset(shuffled, batch_size=16, subset=subset)
        assert len(ds) == subset[1] - subset[0]
        seen += list(ds)
    assert sorted(seen) == list(range(1000))
    seen = []
    for part in redox.split(shuffled, [0.7, 0.3], seed=1):
        seen += list(redox.RedoxDataset(shuffled, batch_size=16, subset=part))
    assert sorted(seen) == list(range(1000))


@given(st.lists(st.integers(1, 100), min_size=1, max_size=8), st.integers(1, 10_000))
def test_fractions_that_make_one_leave_nothing_out(weights: list[int], samples: int) -> None:
    ends = _ends([w / sum(weights) for w in weights], samples)
    assert ends[-1] == samples
    assert ends == sorted(ends)
