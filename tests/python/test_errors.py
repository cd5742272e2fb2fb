"""Exceptions: what they also are, that they survive pickling, that one string makes each."""

from __future__ import annotations

import pickle

import pytest
from redox import errors
from redox.sizes import parse_size, show_size

ALSO = {
    "NotADatasetError": FileNotFoundError,
    "FormatError": ValueError,
    "CorruptError": OSError,
    "StorageError": OSError,
    "MemoryLimitError": ValueError,
    "StateError": ValueError,
    "PeerError": ConnectionError,
    "StallError": TimeoutError,
    "EngineError": RuntimeError,
    "ForkError": RuntimeError,
    "ClosedError": ValueError,
}


@pytest.mark.parametrize(("name", "also"), ALSO.items())
def test_each_is_a_redox_error_and_a_built_in_one(name: str, also: type[Exception]) -> None:
    cls = getattr(errors, name)
    assert issubclass(cls, errors.Error)
    assert issubclass(cls, also)
    error = cls("what happened")  # torch builds a worker's error from one string
    assert str(error) == "what happened"
    assert str(pickle.loads(pickle.dumps(error))) == "what happened"


@pytest.mark.parametrize(
    "error",
    [
        errors.CorruptError("bad", shard=3, chunk=7, sample=0, path="p"),
        errors.StorageError("full", path="p", errno=28),
        errors.MemoryLimitError("small", needed=10, given=5, window=2),
        errors.PeerError("gone", peer="10.0.0.1:9"),
    ],
)
def test_attributes_survive_pickling(error: errors.Error) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert copy.__dict__ == error.__dict__ or copy.errno == 28
    for name in ("shard", "chunk", "sample", "path", "errno", "needed", "given", "window", "peer"):
        assert getattr(copy, name, None) == getattr(error, name, None)


def test_errno_does_not_change_the_message() -> None:
    assert str(errors.StorageError("disk full: p", path="p", errno=28)) == "disk full: p"


def test_skip_sample_is_a_signal() -> None:
    assert not issubclass(errors.SkipSample, errors.Error)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (5, 5),
        ("512kb", 512 << 10),
        ("8MB", 8 << 20),
        ("1.5gb", 3 << 29),
        (" 2 tb ", 2 << 40),
        ("100", 100),
        ("7b", 7),
        ("4k", 4096),
    ],
)
def test_sizes(text: int | str, size: int) -> None:
    assert parse_size(text, "x") == size


@pytest.mark.parametrize("text", ["", "big", "-1", -1, 0, "0", 1.5, None, True, "1e3", "1 zb", "8 mb s"])
def test_what_is_no_size_is_named(text: object) -> None:
    with pytest.raises(ValueError, match=r"cache=.*8mb"):
        parse_size(text, "cache")  # type: ignore[arg-type]


def test_sizes_are_shown_as_people_read_them() -> None:
    assert [show_size(n) for n in (5, 1024, 8 << 20, 3 << 29)] == ["5 B", "1.0 KiB", "8.0 MiB", "1.5 GiB"]
