"""Where a run works: a folder for its data, removed however the run ends, and the processes that measure."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, Any

from harness import tree
from harness.machine import ROOT

ENOUGH = 10 << 30  # bytes that the data of all rows take
SIGNALS = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
HOURS = 4 * 3600.0  # no child takes that long
ENDING = 20.0  # seconds for a child to end once it has said what it found
BENCHMARKS = ROOT / "benchmarks"


class MeasureError(Exception):
    """A child could not measure; the message says why."""


def hot_folder() -> Path:
    """Return where data is in memory without anybody's doing: a tmpfs, if it and the memory are large enough."""
    shared = Path("/dev/shm")
    lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    if shared.is_dir() and min(shutil.disk_usage(shared).free, free) > ENOUGH:
        return shared
    return Path(tempfile.gettempdir())


class Place:
    """A folder of data on memory (`hot`) and one on a disk, both made when entered and removed when left.

    SIGTERM and SIGHUP end the run as Ctrl-C does, so that nothing stays behind. For the main thread, once.
    """

    def __init__(self, hot: Path | None, disk: Path | None) -> None:
        self._parents = hot or hot_folder(), disk or Path(tempfile.gettempdir())
        self._numbers = count()  # of children: all processes of one carry its name
        self._children: set[subprocess.Popen[str]] = set()
        self._errors: dict[subprocess.Popen[str], IO[str]] = {}
        self.interrupted = False  # by a signal, even where what it broke off raised something else than its exception

    def __enter__(self) -> Place:
        for number in SIGNALS:
            signal.signal(number, self._interrupt)
        self.hot, self.disk = (Path(tempfile.mkdtemp(prefix="redox-bench-", dir=parent)) for parent in self._parents)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C must not leave data behind
        for child in self._children:
            child.kill()
            child.wait()
        for folder in (self.hot, self.disk):
            shutil.rmtree(folder, ignore_errors=True)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self.interrupted = True
        raise KeyboardInterrupt

    def limits(self, size: int, batch: int, seconds: float, chunk: int = 0, slots: int = 0) -> dict[str, float]:
        """Return what C reaches on one thread, in samples/s by way."""
        program = self.disk / "limits"
        if not program.exists():
            subprocess.run(["cc", "-O3", "-o", str(program), str(BENCHMARKS / "limits.c")], check=True)
        given = [str(chunk), str(slots)] if chunk else []
        return self._json([str(program), str(self.hot), str(size), str(batch), str(seconds), *given])

    def child(self, way: str, python: Path | None = None, **what: Any) -> dict[str, Any]:
        """Run a way of `child.py` in a fresh process and return what it found."""
        return self._json(self.way(way, python, what), {tree.VARIABLE: f"child-{os.getpid()}-{next(self._numbers)}"})

    def start(
        self, way: str, python: Path | None = None, env: dict[str, str] | None = None, **what: Any
    ) -> subprocess.Popen[str]:
        """Start a child that talks through its standard input and output."""
        return self.begin(self.way(way, python, what), env)

    def begin(
        self, command: list[str], env: dict[str, str] | None = None, before: Callable[[], None] | None = None
    ) -> subprocess.Popen[str]:
        """Start a program that ends with us; its errors go to a file, for `last_words`."""
        errors = tempfile.TemporaryFile("w+", dir=self.disk)  # noqa: SIM115  (closed when the child is forgotten)
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            env=environment() | (env or {}), cwd=self.disk, preexec_fn=before,  # noqa: PLW1509  (there are no threads)
        )  # fmt: skip
        self._children.add(child)
        self._errors[child] = errors
        return child

    def result(self, child: subprocess.Popen[str], seconds: float) -> dict[str, Any]:
        """Return the last line that a child wrote, read as JSON, when it has ended.

        Raises:
            MeasureError: It failed, or did not end in so many seconds.
        """
        hung, said, end = False, "", time.monotonic() + seconds
        while True:
            try:
                output, _ = child.communicate(timeout=max(0.0, min(ENDING, end - time.monotonic())))
                break
            except subprocess.TimeoutExpired as error:
                before, said = said, (error.stdout or b"").decode()
            told = said.rstrip().endswith("}") and said == before
            if told or time.monotonic() >= end:
                child.kill()
                child.wait()  # not for the end of its output: what it started may still hold that
                hung, output = True, said
                break
        words = self.last_words(child)
        self.ended(child)
        if hung and not output.rstrip().endswith("}"):
            raise MeasureError(f"did not end in {seconds:.0f} s")
        if child.returncode and not hung:
            raise MeasureError(words)
        found: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
        return found | ({"hung": True} if hung else {})  # measured, but its process would not end

    def last_words(self, child: subprocess.Popen[str]) -> str:
        """Return the last line of what a child wrote to its standard error."""
        self._errors[child].seek(0)
        return (self._errors[child].read().strip() or f"ended with {child.poll()}, no words").splitlines()[-1]

    def ended(self, child: subprocess.Popen[str]) -> None:
        """Forget a child that has ended."""
        self._children.discard(child)
        self._errors.pop(child).close()

    @staticmethod
    def way(way: str, python: Path | None, what: dict[str, Any]) -> list[str]:
        """Return the command of a child that runs a way of `child.py`."""
        return [str(python or sys.executable), "-m", "harness.child", way, json.dumps(what)]

    def _json(self, command: list[str], env: dict[str, str] | None = None) -> dict[str, Any]:
        """Return the last line of a command's output, read as JSON. The child ends with us."""
        try:
            return self.result(self.begin(command, env), HOURS)
        except MeasureError as error:
            raise MeasureError(f"{Path(command[0]).name} {' '.join(command[2:4])}: {error}") from None


def environment() -> dict[str, str]:
    """Return the environment of children: this tree's package, compiled once as an installed one is, and one thread for
    torch's own operations."""
    paths = [str(ROOT / "python"), str(BENCHMARKS)]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONDONTWRITEBYTECODE": "",
        "OMP_NUM_THREADS": "1",
    }
