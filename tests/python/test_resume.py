"""Packing that is interrupted, repeated, refused, or short of space."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import redox
from test_pack import by_source
from test_sources import Slow, make_tree, png

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}

# Slow enough to be killed in the middle, a little of it at a time. Argument: the destination.
SCRIPT = """
import sys, time
import redox
class Rows:
    def __len__(self): return 3000
    def __getitem__(self, i):
        if i % 50 == 0: time.sleep({sleep})
        return {{"n": i, "data": bytes([i % 251]) * 500}}
options = dict(chunk_size="8kb", shard_size="64kb", shuffle={shuffle}, workers={workers}, codec="none")
info = redox.pack({source}, sys.argv[1], **options)
print(info.fingerprint)
"""
SOURCES = {"map": "Rows()", "generator": "(Rows()[i] for i in range(3000))"}


def start(script: str, dst: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, str(dst)],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def opens(dst: Path) -> bool:
    try:
        redox.open(dst).close()
    except redox.NotADatasetError:
        return False
    return True


@pytest.mark.parametrize(
    ("source", "shuffle", "workers"),
    [("map", True, 0), ("map", False, 2), ("generator", True, 0), ("generator", False, 0)],
)
def test_killed_anywhere_it_ends_the_same(tmp_path: Path, source: str, shuffle: bool, workers: int) -> None:
    script = SCRIPT.format(sleep=0.01, source=SOURCES[source], shuffle=shuffle, workers=workers)
    whole = start(script, tmp_path / "whole")
    wanted = whole.communicate(timeout=60)
    assert whole.returncode == 0, wanted[1]
    dst = tmp_path / "killed"
    dice = random.Random(f"{source}{shuffle}{workers}")
    for _ in range(6):
        packing = start(script, dst)
        time.sleep(dice.uniform(0.1, 1.2))
        packing.kill()
        packing.communicate()
        if packing.returncode == 0:
            break
        if opens(dst):  # killed after it was published
            break
    last = start(script, dst)
    out, err = last.communicate(timeout=60)
    assert last.returncode == 0, err
    assert out == wanted[0]
    assert by_source(dst) == [{"n": i, "data": bytes([i % 251]) * 500} for i in range(3000)]
    assert not (dst / ".redox-pack").exists()


def test_a_killed_transform_that_makes_several(tmp_path: Path) -> None:
    script = SCRIPT.format(sleep=0.01, source="Rows()", shuffle=True, workers=0).replace(
        "codec=", "transform=cut, codec="
    )
    script = "def cut(row):\n    for k in range(row['n'] % 4): yield (row['n'], k)\n" + script
    wanted = start(script, tmp_path / "whole").communicate(timeout=60)[0]
    for pause in (0.8, 1.0):
        packing = start(script, tmp_path / "killed")
        time.sleep(pause)
        packing.send_signal(signal.SIGINT)  # notes what is taken, unlike a kill before the first checkpoint
        packing.communicate()
    assert start(script, tmp_path / "killed").communicate(timeout=60)[0] == wanted != ""
    assert by_source(tmp_path / "killed") == [(n, k) for n in range(3000) for k in range(n % 4)]


def test_a_killed_tree_goes_on(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for i in range(3000):
        file = tree / str(i % 10) / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(png(i % 256) + bytes(2000))
    options = "chunk_size='64kb', shard_size='256kb'"
    script = f"import sys, redox; print(redox.pack({str(tree)!r}, sys.argv[1], {options}).fingerprint)"
    wanted = start(script, tmp_path / "whole").communicate(timeout=60)[0]
    dice = random.Random(0)
    dst = tmp_path / "killed"
    for _ in range(8):
        packing = start(script, dst)
        time.sleep(dice.uniform(0.15, 0.6))
        packing.kill()
        packing.communicate()
    assert start(script, dst).communicate(timeout=60)[0] == wanted != ""


@pytest.mark.parametrize("workers", [0, 2])
def test_ctrl_c_is_quick_clean_and_resumable(tmp_path: Path, workers: int) -> None:
    script = SCRIPT.format(sleep=0.2, source=SOURCES["map"], shuffle=True, workers=workers)
    packing = start(script, tmp_path / "x")
    time.sleep(2)
    os.kill(packing.pid, signal.SIGINT)
    begin = time.monotonic()
    err = packing.communicate(timeout=10)[1]
    assert time.monotonic() - begin < 1.5
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert not opens(tmp_path / "x")
    assert (tmp_path / "x" / ".redox-pack").exists()  # what a next run goes on with
    again = start(SCRIPT.format(sleep=0.0, source=SOURCES["map"], shuffle=True, workers=workers), tmp_path / "x")
    assert again.communicate(timeout=60)[1] == ""
    assert len(by_source(tmp_path / "x")) == 3000


def test_the_same_again_returns_at_once(tmp_path: Path) -> None:
    calls = []

    class Counted(Slow):
        def __getitem__(self, index: int) -> Any:
            calls.append(index)
            return self.values[index]

    data = Counted([{"a": i} for i in range(1000)])
    first = redox.pack(data, tmp_path / "x", workers=0)
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "x").rglob("*")}
    calls.clear()
    assert redox.pack(data, tmp_path / "x", workers=0).to_json() == first.to_json()
    assert len(calls) < 50
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "x").rglob("*")} == before
    for options in (
        {"seed": 1},
        {"shuffle": False},
        {"codec": "lz4"},
        {"chunk_size": "1kb"},
        {"fields": {"a": "float"}},
    ):
        with pytest.raises(FileExistsError, match="overwrite"):
            redox.pack(data, tmp_path / "x", **options)
    with pytest.raises(FileExistsError):
        redox.pack(data, tmp_path / "x", transform=lambda sample: sample)
    with pytest.raises(FileExistsError):
        redox.pack(Counted([{"a": i + 1} for i in range(1000)]), tmp_path / "x")
    assert redox.pack(data, tmp_path / "x", seed=1, overwrite=True).fingerprint != first.fingerprint


def test_the_same_tree_again_returns_at_once(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree", ["a/1.png", "b/2.png"], png())
    first = redox.pack(tree, tmp_path / "x")
    assert redox.pack(str(tree), tmp_path / "x").to_json() == first.to_json()
    (tree / "b" / "2.png").write_bytes(png(3))
    with pytest.raises(FileExistsError, match="overwrite"):
        redox.pack(tree, tmp_path / "x")
    assert redox.pack(tree, tmp_path / "x", overwrite=True).samples == 2


def test_transforms_are_told_apart(tmp_path: Path) -> None:
    def times(factor: int) -> Any:
        return lambda sample: sample * factor

    redox.pack([1, 2, 3], tmp_path / "x", transform=times(2))
    redox.pack([1, 2, 3], tmp_path / "x", transform=times(2))
    with pytest.raises(FileExistsError):
        redox.pack([1, 2, 3], tmp_path / "x", transform=times(3))


@pytest.mark.parametrize("source", ["samples", "tree"])
def test_foreign_places_are_refused(tmp_path: Path, source: str) -> None:
    src: Any = [1, 2, 3] if source == "samples" else make_tree(tmp_path / "tree", ["a.txt"])
    mine = make_tree(tmp_path / "mine", ["thesis.txt"])
    with pytest.raises(FileExistsError, match="mine"):
        redox.pack(src, mine)
    assert [p.name for p in mine.iterdir()] == ["thesis.txt"]
    with pytest.raises(FileExistsError):
        redox.pack(src, mine / "thesis.txt")
    (tmp_path / "empty").mkdir()
    redox.pack(src, tmp_path / "empty")
    redox.pack(src, tmp_path / "some" / "where" / "new")


def test_unwritable_places_are_told(tmp_path: Path) -> None:
    with pytest.raises(redox.StorageError) as caught:
        redox.pack([1], "/proc/nowhere")
    assert caught.value.errno


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    place = tmp_path / "disk"
    place.mkdir()
    if (
        os.geteuid()
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", place], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("needs to mount a tmpfs")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def write_all(dst: Path, samples: list[Any], shuffle: bool) -> None:
    with redox.Writer(dst, shuffle=shuffle) as w:
        for sample in samples:
            w.write(sample)


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_full_disk_is_told(small_disk: Path, shuffle: bool) -> None:
    samples = [os.urandom(10_000) for _ in range(500)]
    with pytest.raises(redox.StorageError) as caught:
        redox.pack(samples, small_disk / "x", shuffle=shuffle)
    assert caught.value.errno == 28
    assert str(caught.value.path).startswith(str(small_disk))
    assert not opens(small_disk / "x")
    shutil.rmtree(small_disk / "x")
    with pytest.raises(redox.StorageError):
        write_all(small_disk / "y", samples, shuffle)
    assert not (small_disk / "y").exists()


def test_a_tree_on_a_full_disk(small_disk: Path, tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree", [f"{i}.bin" for i in range(300)], os.urandom(10_000))
    with pytest.raises(redox.StorageError) as caught:
        redox.pack(tree, small_disk / "x", codec="none")
    assert caught.value.errno == 28
    assert not opens(small_disk / "x")
