"""A short run of soak.py; `make soak` runs all of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")


@pytest.mark.parametrize(("methods", "runs"), [("fork", 16), ("forkserver,spawn", 3)])
def test_no_run_hangs(methods: str, runs: int) -> None:
    script = Path(__file__).with_name("soak.py")
    command = [sys.executable, str(script), "--runs", str(runs), "--methods", methods, "--deadline", "50"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=115, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
