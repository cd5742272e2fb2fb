"""Options are checked when they are given; the message names the option, what it got and what it accepts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redox

BAD: list[tuple[str, Any]] = [
    *[("batch_size", v) for v in (0, -1, 2.0, "8", None, True)],
    *[("shuffle", v) for v in (1, "yes", None)],
    *[("shuffle_seed", v) for v in (-1, 1.5, "0", 1 << 64)],
    ("drop_last", 1),
    *[("pad", v) for v in ("marks", 0, "True")],
    *[("memory_limit", v) for v in ("much", 0, -5, 1.5, None)],
    *[("window", v) for v in (0, -1, 1.5)],
    *[("partitions", v) for v in (0, 1 << 16)],
    *[("io", v) for v in ("mmap", None)],
    *[("exchange", v) for v in ("none", -0.1, 1.1, True)],
    *[("keep", v) for v in ("forever", None)],
    *[("timeout", v) for v in (0, -1, "1", None, float("nan"), float("inf"))],
    *[("on_error", v) for v in ("ignore", None)],
    *[("max_skipped", v) for v in (-1, 1.5)],
    *[("fields", v) for v in ([], "image", ["no such field"], [1], 5)],
    *[("with_index", v) for v in ("number", 1, None)],
    *[("decode", v) for v in (None, 1)],
    *[("batched", v) for v in (None, 1)],
    *[("transform", v) for v in (1, "x")],
    *[("target_transform", v) for v in (1, "x")],
    *[("rank", v) for v in (0, -1)],
    *[("world_size", v) for v in (2, "1", 1.0, True, 0, 1 << 40)],
    *[("nodes", v) for v in (True, 1.0, "1", 0, 2)],
    ("subset", (0.5, 0.5)),
    ("subset", (0.1, 1.1)),
    ("subset", (0, 1.0)),
    ("subset", (5, 5)),
    ("subset", (0, 1001)),
    ("subset", "all"),
    ("subset", []),
    ("subset", [0.5, 0.7]),
    ("subset", [1, 2, 1]),
    ("subset", [-1]),
    ("subset", np.array([[1]])),
]


@pytest.mark.parametrize(("option", "value"), BAD, ids=lambda v: str(v)[:20])
def test_impossible_values(pack: Any, option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=option):
        redox.RedoxDataset(pack(), **{"batch_size": 8, option: value})


@pytest.mark.parametrize(
    "options",
    [
        {"borrow": True},
        {"pad": "mark"},
        {"pad": "mark", "with_index": "key"},
        {"batched": True, "target_transform": int},
        {"fields": ["0"], "target_transform": int},
    ],
)
def test_impossible_together(pack: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"borrow|pad|target_transform"):
        redox.RedoxDataset(pack(), batch_size=8, **options)


@pytest.mark.parametrize("world", [("0", "2"), ("0", 2), (0, 2.0), (0.0, 2), (True, 2), (0, True), (2, 2), (-1, 2)])
@pytest.mark.parametrize("face", ["RedoxDataset", "MapDataset"])
def test_ranks_are_whole_numbers(pack: Any, face: str, world: tuple[Any, Any]) -> None:
    wrong = "rank" if isinstance(world[1], int) and world[1] > 1 else "world_size"
    with pytest.raises(ValueError, match=rf"^{wrong}=.*: expected a whole number from [01] to \d+$"):
        getattr(redox, face)(pack(), batch_size=8, rank=world[0], world_size=world[1])
    ds = getattr(redox, face)(pack(), batch_size=8, rank=np.int64(1), world_size=np.uint8(2))
    assert (ds.world.rank, ds.world.size) == (1, 2)


@pytest.mark.parametrize("path", ["", b"x", "a\0b"])
def test_paths_that_are_none(path: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = r"path is empty|expected a str or a path|without a NUL"
    calls: list[Callable[[], Any]] = [
        lambda: redox.open(path),
        lambda: redox.RedoxDataset(path, batch_size=8),
        lambda: redox.MapDataset(path, batch_size=8),
        lambda: redox.simulate(path, batch_size=8),
        lambda: redox.split(path, [0.5, 0.5]),
        lambda: redox.pack([{"a": 1}], path, overwrite=True),
        lambda: redox.Writer(path, overwrite=True),
    ]
    if not isinstance(path, bytes):
        calls.append(lambda: redox.pack(path, "x"))
    for call in calls:
        with pytest.raises(ValueError, match=rf"^(path|dst|src)=.*({words})"):
            call()
    assert not list(tmp_path.iterdir())


def test_unknown_options_are_refused(pack: Any) -> None:
    with pytest.raises(TypeError, match="num_workers"):
        redox.RedoxDataset(pack(), batch_size=8, num_workers=3)


@pytest.mark.parametrize("path", ["s3://bucket/data", "https://host/data"])
def test_other_schemes_say_what_to_do(path: str) -> None:
    with pytest.raises(ValueError, match=r"not supported.*copy"):
        redox.RedoxDataset(path, batch_size=8)


def test_numpy_numbers_are_numbers(pack: Any) -> None:
    ds = redox.RedoxDataset(pack(), batch_size=np.int64(8), shuffle=np.bool_(False), shuffle_seed=np.uint8(3))
    assert len(ds) == 1000
    assert ds.batch_size == 8
    redox.RedoxDataset(pack(), batch_size=8, timeout=np.float32(3), exchange=np.float32(0.5))
    subset = np.arange(0, 1000, 2)
    report = redox.simulate(pack(), batch_size=np.int64(8), world_size=np.int32(2), nodes=np.int8(2), subset=subset)
    assert report.samples == 500


@pytest.mark.parametrize(
    ("option", "value"), [("seed", -1), ("shuffle", 1), ("window", 0), ("partitions", "x"), ("memory_limit", "much")]
)
def test_simulate_checks_its_options(pack: Any, option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{option}="):
        redox.simulate(pack(), batch_size=8, **{option: value})


def test_auto_is_named_where_it_is_accepted(pack: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r'memory_limit.*"auto" or a size'):
        redox.RedoxDataset(pack(), batch_size=8, memory_limit="AUTO")
    for wrong in ("Auto", "3000pb", 1 << 61):
        with pytest.raises(ValueError, match=r'chunk_size.*"auto" or a size'):
            redox.pack([1], tmp_path / "x.redox", chunk_size=wrong)


def test_a_window_that_does_not_fit_says_what_would(pack: Any) -> None:
    ds = redox.RedoxDataset(pack(), batch_size=8, memory_limit="16kb")
    with pytest.raises(redox.MemoryLimitError) as caught:
        next(iter(ds))
    error = caught.value
    assert error.given == 16 << 10
    assert error.needed is not None
    assert error.needed > error.given
    fits = redox.RedoxDataset(pack(), batch_size=8, memory_limit=error.needed)
    assert len(list(fits)) == 1000
    with pytest.raises(redox.MemoryLimitError):
        list(redox.RedoxDataset(pack(), batch_size=8, memory_limit=error.needed - 1))


def test_the_largest_window_that_fits_is_named(pack: Any) -> None:
    whole = redox.RedoxDataset(pack(), batch_size=8, memory_limit=1)
    with pytest.raises(redox.MemoryLimitError) as caught:
        next(iter(whole))
    assert caught.value.needed is not None
    half = caught.value.needed * 2 // 3
    with pytest.raises(redox.MemoryLimitError) as caught:
        next(iter(redox.RedoxDataset(pack(), batch_size=8, memory_limit=half)))
    window = caught.value.window
    assert window is not None
    if window:
        assert len(list(redox.RedoxDataset(pack(), batch_size=8, memory_limit=half, window=window))) == 1000
