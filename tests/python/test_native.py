"""The ctypes layer: statuses to exceptions, text of any length, log, loading, handles that are gone."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redox
from redox import _library, _native

HEADER = Path(__file__).parents[2] / "include" / "redox.h"


def test_the_header_and_the_bindings_agree() -> None:
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)
    declared = dict(re.findall(r"redox_status (redox_\w+)\(([^)]*)\)", text))
    assert set(declared) == set(_library._SIGNATURES)
    for name, arguments in declared.items():
        assert len(_library._SIGNATURES[name]) == arguments.count(",") + 1, name
    assert re.search(rf"REDOX_ABI_VERSION {_library.ABI_VERSION}u", text)
    statuses = {int(value) for value in re.findall(r"REDOX_E\w+ = (-\d+)", text)}
    assert statuses == set(_library._ERRORS)


def test_every_status_is_an_exception() -> None:
    for status, kind in _library._ERRORS.items():
        assert type(_library.failure(status)) is kind
        assert str(_library.failure(status))


@pytest.mark.parametrize(
    "call",
    [
        _native.dataset_info,
        lambda h: _native.read(h, _native.numbers_of([0]), _native.Batch()),
        lambda h: _native.find_key(h, "x"),
        lambda h: _native.loader_new(h, {"batch_size": 1}),
        lambda h: _native.next_parts(h, _native.Batch(), None, 0.1),
        lambda h: _native.acquire(h, _native.Batch(), 0.1, ctypes.c_uint64()),
        _native.state,
        _native.stats,
        _native.cancel,
        lambda h: _native.set_epoch(h, 0),
        _native.loader_close,
        _native.dataset_close,
        _native.writer_resumed,
        _native.writer_commit,
        _native.job_cancel,
    ],
)
def test_handles_that_are_gone_are_refused(pack: Any, call: Any) -> None:
    closed = _native.dataset_open(pack())
    _native.dataset_close(closed)
    for handle in (0, closed, 1 << 63, 12345):
        with pytest.raises((redox.ClosedError, ValueError)):
            call(handle)


def test_long_texts_are_fetched_whole(tmp_path: Path) -> None:
    classes = [f"class {i} " + "x" * 200 for i in range(500)]
    with redox.Writer(tmp_path / "d", fields=["int"], classes=classes) as writer:
        writer.write((1,))
    with redox.open(tmp_path / "d") as d:
        assert d.info.classes == classes
        assert d.classes == classes


def test_unknown_options_are_named(pack: Any) -> None:
    dataset = _native.dataset_open(pack())
    with pytest.raises(ValueError, match="bach_size"):
        _native.loader_new(dataset, {"bach_size": 3})
    _native.dataset_close(dataset)


def test_a_name_in_any_encoding(tmp_path: Path, pack: Any) -> None:
    path = tmp_path / "späces and 日本.redox"
    shutil.copytree(pack(100), path)
    with redox.open(path) as d:
        assert len(d) == 100


def test_log_lines_reach_logging(pack: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        json.dumps({"level": level, "message": f"{level} ä"}).encode()
        for level in ("debug", "info", "warning", "error")
    ]
    waiting = [b"\n".join(lines) + b"\n"]

    class Library:
        def redox_log_read(self, buffer: Any, size: int, need: Any) -> int:
            text = waiting.pop() if waiting else b""
            buffer.value = text
            need._obj.value = len(text) + 1
            return 0

    monkeypatch.setattr(_library, "load", Library)
    with caplog.at_level(logging.DEBUG, logger="redox"):
        _library.poll_log()
    assert [(r.levelname, r.message) for r in caplog.records] == [
        (level.upper(), f"{level} ä") for level in ("debug", "info", "warning", "error")
    ]


def package_in(tmp_path: Path) -> Path:
    """A copy of the package, as it lies in a source tree."""
    source = Path(_library.__file__).parent
    target = tmp_path / "python" / "redox"
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    return target


def use_from(tmp_path: Path) -> str:
    code = "import redox._native as n; n.load(); print('loaded')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "python")},
        check=False,
        capture_output=True,
        text=True,
    )
    return done.stdout + done.stderr


def test_an_installed_library_loads(tmp_path: Path) -> None:
    package_in(tmp_path)
    assert use_from(tmp_path) == "loaded\n"


def test_a_missing_library_says_what_to_do(tmp_path: Path) -> None:
    (package_in(tmp_path) / "libredox.so.0").unlink()
    assert "run make build" in use_from(tmp_path)


def test_a_library_of_other_sources_says_what_to_do(tmp_path: Path) -> None:
    package_in(tmp_path)
    (tmp_path / "capi").mkdir()
    shutil.copy(HEADER.parents[1] / "capi" / "sourcehash.py", tmp_path / "capi")
    for name in ("go.mod", "go.sum"):
        (tmp_path / name).write_text("changed")
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "redox.h").write_text("changed")
    answer = use_from(tmp_path)
    assert "ImportError" in answer
    assert "run make build" in answer
