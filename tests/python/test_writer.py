"""`redox.Writer`: sample by sample, all or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redox
from test_pack import by_source


def test_samples_come_out(tmp_path: Path) -> None:
    fields = {"image": "jpeg", "label": "int", "x": "float32[3]"}
    with redox.Writer(tmp_path / "x", fields=fields, classes=["a", "b"]) as w:
        for i in range(100):
            w.write({"image": b"%d" % i, "label": i % 2, "x": np.full(3, i, np.float32)}, key=f"k{i}")
        assert w.info is None
    assert w.info is not None
    assert w.info.samples == 100
    assert w.info.fields == fields
    with redox.open(tmp_path / "x") as data:
        assert data.classes == ["a", "b"]
        assert data[data.find("k37")]["image"] == b"37"
        assert data.source(data.find("k37")) == 37


@pytest.mark.parametrize("shuffle", [True, False])
def test_fields_of_tuples_and_single_values(tmp_path: Path, shuffle: bool) -> None:
    with redox.Writer(tmp_path / "x", fields=["int", "str?"], shuffle=shuffle) as w:
        w.write((1, "a"))
        w.write((2, None))
    assert by_source(tmp_path / "x") == [(1, "a"), (2, None)]
    with redox.Writer(tmp_path / "y", fields="int32[2]", shuffle=shuffle) as w:
        w.write([1, 2])
        w.write(np.array([3, 4], np.int32))
    assert [s.tolist() for s in by_source(tmp_path / "y")] == [[1, 2], [3, 4]]
    with redox.Writer(tmp_path / "z", shuffle=shuffle) as w:
        w.write({"a": 1})
    assert by_source(tmp_path / "z") == [{"a": 1}]


def fail(path: Path, samples: int, error: type[BaseException], **options: Any) -> None:
    """Writes some samples, then raises inside the block."""
    with redox.Writer(path, **options) as w:
        for i in range(samples):
            w.write({"a": i})
        raise error


def test_an_exception_leaves_nothing(tmp_path: Path) -> None:
    for error in (KeyError, KeyboardInterrupt):
        with pytest.raises(error):
            fail(tmp_path / "x", 1, error)
    assert not (tmp_path / "x").exists()
    with pytest.raises(redox.NotADatasetError):
        redox.open(tmp_path / "x")
    with redox.Writer(tmp_path / "x") as w:  # and the place is free again
        w.write({"a": 1})


def test_a_refused_sample_does_not_end_the_writer(tmp_path: Path) -> None:
    with redox.Writer(tmp_path / "x") as w:
        w.write({"a": 1})
        with pytest.raises(TypeError, match="sample 1: field 'a'"):
            w.write({"a": "x"})
        with pytest.raises(TypeError, match="'b' is not among"):
            w.write({"a": 1, "b": 2})
        w.write({"a": 2})
    assert by_source(tmp_path / "x") == [{"a": 1}, {"a": 2}]


def test_no_samples(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no sample was written"), redox.Writer(tmp_path / "x"):
        pass
    assert not (tmp_path / "x").exists()


def test_targets(tmp_path: Path) -> None:
    with redox.Writer(tmp_path / "x") as w:
        w.write(1)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        redox.Writer(tmp_path / "x")
    with redox.Writer(tmp_path / "x", overwrite=True) as w:
        w.write(2)
    assert by_source(tmp_path / "x") == [2]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(FileExistsError):
        fail(tmp_path / "mine", 1, KeyError)
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["thesis.txt"]
    with pytest.raises(FileExistsError, match="is not a directory"):
        redox.pack([1], tmp_path / "mine" / "thesis.txt")


def test_closed(tmp_path: Path) -> None:
    w = redox.Writer(tmp_path / "x")
    w.write(1)
    w.close()
    w.close()
    w.abort()
    with pytest.raises(redox.ClosedError):
        w.write(2)
    assert by_source(tmp_path / "x") == [1]
    w = redox.Writer(tmp_path / "y")
    w.write(1)
    del w  # forgotten: nothing is left
    assert not (tmp_path / "y").exists()


def test_wrong_keys_and_numbers(tmp_path: Path) -> None:
    with redox.Writer(tmp_path / "x") as w:
        wrong: dict[str, Any]
        for wrong in ({"key": 3}, {"source": -1}, {"source": "a"}):
            with pytest.raises(TypeError, match=next(iter(wrong))):
                w.write(1, **wrong)
        with pytest.raises(ValueError, match=r"key='a.x00b'"):
            w.write(1, key="a\0b")
        w.write(1, source=10, key="ü")
        with pytest.raises(ValueError, match="ascend"):
            w.write(1, source=10)
        w.write(2, source=12)
    with redox.open(tmp_path / "x") as data:
        assert {data.source(i): data.key(i) for i in range(2)} == {10: "ü", 12: "12"}


@pytest.mark.parametrize("options", [{"codec": "zip"}, {"chunk_size": 3}, {"fields": {"a": "zip"}}, {"seed": -1}])
def test_wrong_options_are_told_at_once(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        redox.Writer(tmp_path / "x", **options)
    assert not (tmp_path / "x").exists()


def test_going_on(tmp_path: Path) -> None:
    options: dict[str, Any] = {"fields": {"a": "int"}, "resume": True}
    with pytest.raises(KeyError):
        fail(tmp_path / "x", 10, KeyError, **options)
    with redox.Writer(tmp_path / "x", **options) as w:
        assert w.resumed == 10
        for i in range(w.resumed, 20):
            w.write({"a": i})
    assert by_source(tmp_path / "x") == [{"a": i} for i in range(20)]
