"""What all processes of a measurement use, however they were started: they carry its name in their environment."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VARIABLE = "REDOX_BENCHMARK"
TICK = os.sysconf("SC_CLK_TCK")


def processes(name: str) -> Iterator[int]:
    """Yield the processes whose environment has the name: children, daemons, what was left behind."""
    wanted = f"{VARIABLE}={name}".encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    yield int(folder.name)
            except OSError:
                pass


def cpu(name: str) -> float:
    """Return the seconds of processor time of all of them, and of their children that have ended."""
    total = 0
    for process in processes(name):
        try:
            fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            total += sum(int(field) for field in fields[11:15])
        except OSError:
            pass
    return total / TICK


def memory(name: str, without: str) -> int:
    """Return their bytes of anonymous and shared memory, each page counted once.

    Files that are mapped are left out: their pages are the kernel's to take, and the data is among them.

    Args:
        name: Of the measurement.
        without: The folder of the data, which may be on a tmpfs and would look like shared memory.
    """
    total = 0
    for process in processes(name):
        for mapped, size in pss(process).items():
            own = not mapped.startswith("/") or mapped.startswith(("/memfd:", "/dev/shm/", "/dev/zero", "/SYSV"))
            total += size if own and not mapped.startswith(without) else 0
    return total


def pss(process: int) -> dict[str, int]:
    """Return a process's proportional memory by what is mapped; nothing once it is gone."""
    found: dict[str, int] = {}
    name = ""
    try:
        for line in Path(f"/proc/{process}/smaps").read_text(encoding="utf-8").splitlines():
            if line.startswith("Pss:"):
                found[name] = found.get(name, 0) + int(line.split()[1]) * 1024
            elif "-" in line.split(" ", 1)[0]:
                name = line.split(maxsplit=5)[5] if len(line.split(maxsplit=5)) > 5 else ""
    except OSError:
        return {}
    return found


class Left:
    """What a killed program leaves behind: processes, shared memory, files in its temporary folder."""

    def __init__(self, name: str, temporary: Path) -> None:
        self._name, self._temporary = name, temporary
        self._mapped: set[str] = set()

    def note(self, without: str) -> None:
        """Remember what shared memory the program has now, beside the data: whose the rest is cannot be told."""
        for process in processes(self._name):
            for line in Path(f"/proc/{process}/maps").read_text(encoding="utf-8").splitlines():
                parts = line.split(maxsplit=5)
                if len(parts) == 6 and parts[5].startswith("/SYSV"):
                    self._mapped.add(f"SysV {parts[4]}")
                elif len(parts) == 6 and parts[5].startswith("/dev/shm/") and not parts[5].startswith(without):
                    self._mapped.add(parts[5])

    def look(self, seconds: float) -> dict[str, Any]:
        """Return what is left once that long has passed, or nothing is left any more; then end the processes."""
        end = time.monotonic() + seconds
        while True:
            found = {
                "processes": len(list(processes(self._name))),
                "shared memory": len(self._shared() & self._mapped),
                "files": sum(1 for _ in self._temporary.rglob("*")),
            }
            if not any(found.values()) or time.monotonic() > end:
                break
            time.sleep(0.1)
        for process in processes(self._name):
            os.kill(process, signal.SIGKILL)
        return {what: count for what, count in found.items() if count}

    @staticmethod
    def _shared() -> set[str]:
        posix = {str(path) for path in Path("/dev/shm").iterdir()}
        system = Path("/proc/sysvipc/shm").read_text(encoding="ascii").splitlines()[1:]
        return posix | {f"SysV {line.split()[1]}" for line in system}
