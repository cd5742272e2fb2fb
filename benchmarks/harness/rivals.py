"""Rivals in an environment of their own, so that what they depend on does not change what Redox is measured with."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from harness.child import length, timed
from harness.data import SMALL, random_rows
from harness.machine import ROOT

ENVIRONMENT = ROOT / ".bench-venv"
PACKAGES = {"Streaming": "mosaicml-streaming", "LitData": "litdata", "WebDataset": "webdataset"}
PINS = {"mosaicml-streaming": "0.13.0", "litdata": "0.2.76", "webdataset": "1.0.2"}


def install(package: str) -> Path:
    """Return the rivals' Python with a package installed in it.

    Torch is taken from this environment by a path file: it is the same for all, and too large to have twice.

    Raises:
        RuntimeError: It can't be installed here; the message says why.
    """
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        _run([sys.executable, "-m", "venv", str(ENVIRONMENT)])
        packages = subprocess.run(
            [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            capture_output=True, text=True, check=True,
        ).stdout.strip()  # fmt: skip
        Path(packages, "shared.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    _run([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", f"{package}=={PINS[package]}"])
    return python


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        raise RuntimeError(f"can't be installed: {lines[-1] if lines else 'no words'}")


# ---- in the rivals' process ------------------------------------------------------------------------------------


def write(name: str, path: str, samples: int) -> dict[str, Any]:
    """Write the small samples in a rival's format."""
    peer = import_module(f"peers.{name.lower()}_peer")
    peer.write(Path(path), random_rows(SMALL, samples))
    return {"version": version(peer.PACKAGE)}


def load(name: str, path: str, workers: int, seconds: float) -> dict[str, Any]:
    """Load them in batches."""
    peer = import_module(f"peers.{name.lower()}_peer")
    epoch = peer.epochs(Path(path), SMALL.batch, workers)
    return timed(epoch, length, seconds / 2, seconds)
