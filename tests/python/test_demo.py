"""The demonstration, from outside."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_resume import ENVIRONMENT

pytest.importorskip("mlxtend")
pytest.importorskip("torch")


TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


@pytest.mark.timeout(300)  # PyTorch alone takes a minute on a busy machine
@pytest.mark.parametrize(
    ("launcher", "options", "fewer"), [([], [], 10), ([], ["--workers", "2"], 3), (TORCHRUN, ["--workers", "1"], 2)]
)
def test_both_sides_learn_the_same(tmp_path: Path, launcher: list[str], options: list[str], fewer: int) -> None:
    command = [sys.executable, *launcher, "-m", "redox.demo", "--json", *options]
    environment = {**ENVIRONMENT, "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    for side in ("files", "redox"):
        assert result[side]["accuracy"] > 0.9
    assert abs(result["files"]["accuracy"] - result["redox"]["accuracy"]) < 0.04
    assert result["redox"]["reads"] < result["files"]["reads"] / fewer
    assert list(tmp_path.glob("redox*")) == []


def test_ctrl_c(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "redox", "demo", "--epochs", "50"]
    demo = subprocess.Popen(
        command, env={**ENVIRONMENT, "TMPDIR": str(tmp_path)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert demo.stdout is not None
    while "training from redox" not in demo.stdout.readline() and demo.poll() is None:
        if len(list(tmp_path.glob("*/train.redox/manifest.json"))):
            break
    time.sleep(1)
    demo.send_signal(signal.SIGINT)
    begin = time.monotonic()
    err = demo.communicate(timeout=20)[1]
    assert time.monotonic() - begin < 4  # on a busy machine
    assert (demo.returncode, err) == (130, "redox: interrupted\n")
    assert list(tmp_path.glob("redox*")) == []
