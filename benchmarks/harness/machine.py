"""What the numbers were taken on, and how busy it was meanwhile."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("numpy", "torch")


def facts(peers: dict[str, str]) -> dict[str, Any]:
    """Return machine, versions and commit; `peers` are the versions of the rivals."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "go": _output("go", "version").removeprefix("go version "),
        "compiler": _output("cc", "--version").partition("\n")[0],
        "packages": {name: _version(name) for name in PACKAGES} | peers,
        "commit": _output("git", "-C", str(ROOT), "describe", "--always", "--dirty") or "unknown",
        "command": " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
    }


def store(path: Path | None, found: dict[str, Any]) -> None:
    """Store what was measured, if the user wants that."""
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


class Busy:
    """How busy the machine is with others: their share of the processors, stolen time, load, since this was made."""

    def __init__(self) -> None:
        self._before = self._times()

    @staticmethod
    def _times() -> tuple[list[int], float]:
        fields = Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0].split()[1:9]
        usage = os.times()
        return [int(field) for field in fields], usage.user + usage.system + usage.children_user + usage.children_system

    def look(self) -> dict[str, float]:
        """Return percentages of all processor time since this was made."""
        (then, mine_then), (now, mine) = self._before, self._times()
        passed = [after - before for before, after in zip(then, now, strict=True)]
        total = max(1, sum(passed))
        tick = os.sysconf("SC_CLK_TCK")
        busy = total - passed[3] - passed[4] - passed[7]  # without idle, waiting for disks, stolen
        others = max(0.0, busy - (mine - mine_then) * tick)
        return {
            "others_percent": round(100 * others / total, 1),
            "steal_percent": round(100 * passed[7] / total, 1),
            "load_1m": round(os.getloadavg()[0], 2),
        }
