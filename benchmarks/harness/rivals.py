"""Rivals, each in an environment of its own: what they depend on changes neither Redox's measurements nor another's."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from harness.child import length, timed
from harness.data import Shape, random_rows
from harness.machine import ROOT

ENVIRONMENTS = ROOT / ".bench-venv"


@dataclass(frozen=True)
class Rival:
    """A loader.

    Attributes:
        title: In tables.
        peer: Its adapter, `peers/PEER_peer.py`.
        packages: What is installed for it, pinned; nothing: it runs in this environment.
        environment: The folder of its environment.
        shapes: Of the samples that it is for; none: all.
        slow_only: Whether it is for slow stores only.
        hot_only: Whether it is for data in memory only.
        packed: Whether the order in which samples are packed can matter; else it is measured with one.
        packing: What its adapter's `write` is given beside the samples.
        options: What its adapter's `load` is given beside the data.
    """

    title: str
    peer: str
    packages: tuple[str, ...] = ()
    environment: str = ""
    shapes: tuple[str, ...] = ()
    slow_only: bool = False
    hot_only: bool = False
    packed: bool = True
    packing: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def own(self) -> bool:
        """Whether it is Redox."""
        return self.peer == "redox"

    @property
    def words(self) -> str:
        """What is not as it is by default."""
        return ", ".join(f"`{name}={value!r}`" for name, value in (self.packing | self.options).items())


STREAMING = ("mosaicml-streaming==0.13.0",)
FFCV = ("numba==0.68.1", "opencv-python==5.0.0.93", "ffcv==1.0.2")
CACHED: dict[str, Any] = {"hot_only": True, "packed": False, "options": {"order": "RANDOM", "os_cache": True}}
HALF_GIB = {"memory_limit": "512mb"}
RIVALS = (
    Rival("Redox", "redox"),
    Rival("Redox-8MiB", "redox", shapes=("110KB-varied",), packing={"chunk_size": "8mb"}, options=HALF_GIB),
    Rival("Redox-resident", "redox", shapes=("3KB",), options={"memory_limit": "1gb"}),
    Rival("files", "files", packed=False),
    Rival("memmap", "memmap", shapes=("3KB",), packed=False),
    Rival("WebDataset", "webdataset", ("webdataset==1.0.2",), "webdataset"),
    Rival("LitData", "litdata", ("litdata==0.2.76",), "litdata"),
    Rival("LitData-remote", "litdata_remote", ("litdata==0.2.76",), "litdata", slow_only=True),
    Rival("Streaming", "streaming", STREAMING, "streaming"),
    Rival("Streaming-remote", "streaming_remote", STREAMING, "streaming", slow_only=True),
    Rival("Grain", "grain", ("grain==0.2.18", "array_record==0.8.6"), "grain"),
    Rival("HF-iterable", "huggingface", ("datasets==5.2.0",), "huggingface"),
    Rival("FFCV", "ffcv", FFCV, "ffcv"),
    Rival("FFCV-random", "ffcv", FFCV, "ffcv", **CACHED),
    Rival("FFCV-raw", "ffcv", FFCV, "ffcv", ("JPEG",), packing={"write_mode": "raw"}, **CACHED),
)
TITLES = {rival.title: rival for rival in RIVALS}
TARGETS = ("Streaming", "LitData", "WebDataset")  # in the table of targets
WITH_WORKERS = ("memmap", "files", *TARGETS, "Grain", "HF-iterable")  # in its rows of worker processes


@cache
def install(title: str) -> Path:
    """Return the Python of a rival, its packages installed.

    Torch is taken from this environment by a path file: it is the same for all, and too large to have many times.

    Raises:
        RuntimeError: It can't be installed here; the message says why.
    """
    rival = TITLES[title]
    if not rival.packages:
        return Path(sys.executable)
    folder = ENVIRONMENTS / rival.environment
    python = folder / "bin" / "python"
    if not python.exists():
        _run([sys.executable, "-m", "venv", str(folder)])
        packages = subprocess.run(
            [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            capture_output=True, text=True, check=True,
        ).stdout.strip()  # fmt: skip
        Path(packages, "shared.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    _run([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *rival.packages])
    return python


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = re.findall(r"\w+Error: .*|error: .*", done.stderr + done.stdout, re.IGNORECASE)
        raise RuntimeError(f"can't be installed: {max(errors, key=len) if errors else 'no words'}")


# ---- in the rivals' process, for the table of targets -------------------------------------------------------------


def write(peer: str, path: str, shape: dict[str, Any], samples: int) -> dict[str, Any]:
    """Write samples in a rival's format."""
    adapter = import_module(f"peers.{peer}_peer")
    it = Shape(**shape)
    adapter.write(Path(path), enumerate(random_rows(it, samples)), it)
    return {"version": version(adapter.PACKAGE) if adapter.PACKAGE else ""}


def load(peer: str, path: str, shape: dict[str, Any], workers: int, seconds: float) -> dict[str, Any]:
    """Load them in batches."""
    adapter = import_module(f"peers.{peer}_peer")
    with tempfile.TemporaryDirectory() as cached:
        loader = adapter.load(Path(path), Shape(**shape), workers, Path(cached))
        return timed(lambda: loader, length, seconds / 2, seconds)
