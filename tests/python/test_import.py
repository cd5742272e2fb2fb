"""Importing the package: cheap, and without consequences."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
import redox


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_import_brings_nothing_along() -> None:
    loaded = run(
        "import sys, redox; names = 'torch', 'PIL', 'numpy', 'ctypes', 'redox._native';"
        "print(*[name for name in names if name in sys.modules])"
    )
    assert loaded == ""


def test_import_is_quick() -> None:
    """Of the processor's time: what the rest of the machine does is not in it."""
    code = "import numpy, time; t = time.process_time(); import redox; {}; print(time.process_time() - t)"
    assert min(float(run(code.format("0"))) for _ in range(3)) < 0.01
    assert min(float(run(code.format("redox.Dataset"))) for _ in range(3)) < 0.1


def test_data_set_objects_load_no_library(pack: object) -> None:
    path = pack(100)  # type: ignore[operator]
    code = f"""
import pickle, redox
from redox import _library
ds = redox.RedoxDataset({path!r}, batch_size=7)
len(ds), ds.classes, ds.fields, ds.fingerprint, ds.size
pickle.loads(pickle.dumps(ds))
redox.MapDataset({path!r})
print(_library._pid)
"""
    assert run(code) == "0"


def test_every_public_name_is_there() -> None:
    for name in redox.__all__:
        assert getattr(redox, name) is not None
    assert sorted(dir(redox)) == sorted(redox.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        redox.nothing  # noqa: B018


def test_without_torch_the_torch_classes_say_what_to_install() -> None:
    code = """
import sys
sys.modules["torch"] = None
import redox
for name in ("RedoxDataset", "MapDataset", "DataLoader"):
    try:
        getattr(redox, name)
    except ImportError as error:
        assert "pip install torch" in str(error), error
    else:
        raise SystemExit(name)
redox.open
print("ok")
"""
    assert run(code) == "ok"


def test_leaving_with_a_live_iterator_is_silent(pack: object) -> None:
    path = pack(1000)  # type: ignore[operator]
    code = f"""
import redox
it = iter(redox.RedoxDataset({path!r}, batch_size=10))
kept = [next(it) for _ in range(15)]
batches = redox.open({path!r}).batches(10)
more = next(batches)
"""
    begun = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == done.stderr == ""
    assert time.monotonic() - begun < 20
