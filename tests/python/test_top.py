"""`redox top` beside running engines."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redox import engines, wire
from redox.client import reach
from redox.connection import Connection
from test_cli import good
from test_hygiene import Training
from test_resume import ENVIRONMENT

pytest.importorskip("torch")


@pytest.fixture
def training(pack: Any, tmp_path: Path) -> Iterator[Training]:
    """Two workers on a data set that no other test's engine serves."""
    link = tmp_path / "mine.redox"
    link.symlink_to(pack())
    one = Training(tmp_path, str(link), "slow")
    yield one
    one.process.kill()
    assert one.all_gone(7.0)


def shown(path: str, *words: str) -> dict[str, Any]:
    (engine,) = json.loads(good("top", path, "--json", *words))["engines"]
    return dict(engine)


def test_what_is_told(training: Training) -> None:
    engine = shown(training.path)
    assert [engine["pid"]] == training.engines()
    assert engine["path"] == training.path
    assert not engine["silent"]
    assert engine["peers"] == []
    assert 0 < engine["memory"]["used"] <= engine["memory"]["limit"]
    assert engine["samples_per_s"] > 0
    assert engine["storage_bytes_per_s"] >= 0
    (rank,) = engine["ranks"]
    assert (rank["rank"], rank["trainer"], rank["size"]) == (0, training.process.pid, 1000)
    assert sorted(worker["pid"] for worker in rank["workers"]) == sorted(training.workers)
    assert rank["waits"]
    assert rank["stats"]["total"]["samples"] > 0
    said = good("top", training.path, "--every", "0.2")
    for word in (training.path, f"engine {engine['pid']}", f"trainer {training.process.pid}", "2 workers", "samples/s"):
        assert word in said, said


def test_an_engine_that_stands_still_is_told(training: Training) -> None:
    (pid,) = training.engines()
    os.kill(pid, signal.SIGSTOP)
    try:
        engine = shown(training.path)
        assert engine == {"path": training.path, "pid": pid, "silent": True}
        assert "does not answer" in good("top", training.path)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert not shown(training.path)["silent"]


def test_who_looks_keeps_nothing_alive(training: Training) -> None:
    """One who looks, and stays connected, and another who never says a word."""
    (pid,) = training.engines()
    (name,) = [name for name, inode in engines.running().items() if (engines.look(name, inode) or {}).get("pid") == pid]
    sock, mute = reach(name), reach(name)
    connection = Connection(sock, name, None)
    body, _ = connection.request(wire.LOOK, expect=wire.TEXT, timeout_s=10)
    assert [rank["trainer"] for rank in json.loads(body)["ranks"]] == [training.process.pid]
    with pytest.raises(ValueError, match="HELLO"):
        connection.request(wire.STATUS, expect=wire.TEXT, timeout_s=10)
    training.process.kill()
    assert training.all_gone(7.0)
    mute.close()


@pytest.mark.parametrize("end", ["q", "interrupt"])
def test_on_a_terminal(training: Training, end: str) -> None:
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "redox", "top", training.path, "--every", "0.1"]
    top = subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=subprocess.PIPE, env=ENVIRONMENT, start_new_session=True
    )
    os.close(follower)
    said = _read_until(leader, b"samples/s", times=3)  # it refreshes
    assert b"1 engine" in said
    if end == "q":
        os.write(leader, b"q")
    else:
        top.send_signal(signal.SIGINT)
    rest = b""
    while (part := _read(leader)) is not None:
        rest += part
    _, errors = top.communicate(timeout=30)
    assert b"Traceback" not in errors + rest
    assert top.returncode == (0 if end == "q" else 130)
    os.close(leader)


def _read_until(file: int, word: bytes, times: int) -> bytes:
    said, deadline = b"", time.monotonic() + 30
    while said.count(word) < times:
        assert time.monotonic() < deadline, said
        said += _read(file) or b""
    return said


def _read(file: int) -> bytes | None:
    """What a terminal's other end wrote; None: it is closed."""
    ready, _, _ = select.select([file], [], [], 10)
    if not ready:
        return b""
    try:
        return os.read(file, 4096) or None
    except OSError:
        return None
