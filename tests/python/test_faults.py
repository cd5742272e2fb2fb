"""Signals at random moments, and what is there of it from outside: the right batches, or an error and nothing left."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redox

torch = pytest.importorskip("torch")

_SCRIPT = """
import json, sys, time
import redox, torch

class Slow:
    def __call__(self, image):
        time.sleep(0.002)
        return image

if __name__ == "__main__":
    path, epochs, method = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    ds = redox.RedoxDataset(path, batch_size=16, transform=Slow())
    loader = torch.utils.data.DataLoader(ds, 16, num_workers=2, persistent_workers=True, multiprocessing_context=method)
    for epoch in range(epochs):
        batches, seen = iter(loader), []
        if epoch == 0:
            next_one = next(batches)
            print("ready", *[worker.pid for worker in batches._workers], flush=True)
            seen += next_one[1].tolist()
        for _, labels in batches:
            seen += labels.tolist()
        print(json.dumps(seen), flush=True)
"""
VICTIMS = ["trainer", "worker", "engine"]


class Training:
    """A training process with two workers, seen from outside."""

    def __init__(self, folder: Path, path: str, number: int, epochs: int, method: str = "fork") -> None:
        self.temporary = folder / f"tmp{number}"
        self.temporary.mkdir()
        script = folder / f"train{number}.py"  # each its own: the one before may not have read its yet
        script.write_text(_SCRIPT)
        self.path = str(folder / f"{number}.redox")  # by which its engine is known
        os.symlink(path, self.path)
        self.process = subprocess.Popen(
            [sys.executable, str(script), self.path, str(epochs), method], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(self.temporary)},
        )  # fmt: skip

    def begun(self) -> None:
        """Wait until it has got a batch, and note who belongs to it."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().split()
        assert line[:1] == ["ready"], (self.process.communicate()[1], self.process.returncode)
        self.workers = list(map(int, line[1:]))
        (self.engine,) = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and serves(int(pid), self.path)]
        self.sockets = sockets_of(self.engine)
        assert self.sockets

    def pid(self, victim: str) -> int:
        return {"trainer": self.process.pid, "worker": self.workers[0], "engine": self.engine}[victim]

    def left(self) -> list[str]:
        """What there still is of it."""
        pids = [self.process.pid, *self.workers, self.engine]
        left = [f"process {pid}" for pid in pids if runs(pid)]
        left += [f"socket {name}" for name in self.sockets & sockets_there()]
        left += [f"shared memory {name}" for name in os.listdir("/dev/shm") if any(f"_{pid}_" in name for pid in pids)]
        return left + [f"file {name}" for name in os.listdir(self.temporary) if "redox" in name]

    def nothing_left(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.left() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert self.left() == []
        return True


def serves(pid: int, path: str) -> bool:
    """Whether a process is the engine of a data set; not the one that it was forked from, which ends at once."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"redox.engine" in words and path.encode() in words and runs(pid)


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def abstract_sockets() -> dict[str, str]:
    """Names of the abstract sockets, by inode."""
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return {line[6]: line[7] for line in lines if len(line) > 7 and line[7].startswith("@redox-")}


def sockets_there() -> set[str]:
    return set(abstract_sockets().values())


def sockets_of(pid: int) -> set[str]:
    names = abstract_sockets()
    found = set()
    for file in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{file}")
        except OSError:
            continue
        found |= {names[target[8:-1]]} if target[8:-1] in names else set()
    return found


@pytest.fixture
def trainings(pack: Any, tmp_path: Path) -> Iterator[Any]:
    """One for each victim, at the same time: `trainings(epochs, method)`."""
    running: list[Training] = []

    def start(epochs: int, method: str) -> list[Training]:
        running.extend(Training(tmp_path, pack(), number, epochs, method) for number in range(len(VICTIMS)))
        for training in running:
            training.begun()
        return running

    yield start
    for training in running:
        training.process.kill()
        training.process.communicate(timeout=30)


@pytest.mark.parametrize(("seed", "method"), [(1, "fork"), (2, "forkserver")])
def test_killed_at_a_random_moment(trainings: Any, seed: int, method: str) -> None:
    moments = random.Random(seed)
    running = trainings(1000, method)
    for victim, training in zip(VICTIMS, running, strict=True):
        time.sleep(moments.random() / 3)
        os.kill(training.pid(victim), signal.SIGKILL)
    for victim, training in zip(VICTIMS, running, strict=True):
        _, said = training.process.communicate(timeout=60)
        assert training.process.returncode != 0
        if victim != "trainer":
            assert {"worker": "DataLoader worker (pid", "engine": "EngineError"}[victim] in said
        assert training.nothing_left(7)  # PyTorch's own workers look for their parent every 5 s


def test_stopped_for_a_while_at_random_moments(trainings: Any, pack: Any) -> None:
    ds = redox.RedoxDataset(pack(), batch_size=16)
    order = [[label for _, label in ds] for _ in range(2)]
    moments = random.Random(3)
    running = trainings(2, "fork")
    for _ in range(4):
        for victim, training in zip(VICTIMS, running, strict=True):
            if training.process.poll() is None and runs(training.pid(victim)):
                os.kill(training.pid(victim), signal.SIGSTOP)
                time.sleep(moments.random() / 10)
                os.kill(training.pid(victim), signal.SIGCONT)
    for training in running:
        out, said = training.process.communicate(timeout=60)
        assert training.process.returncode == 0, said
        assert [json.loads(line) for line in out.splitlines()] == order
        assert training.nothing_left(7)


class _Late:
    """Takes its time to be pickled: what comes after it in a batch is pickled when the worker has long gone on."""

    def __reduce__(self) -> Any:
        time.sleep(0.02)
        return _Late, ()


def _late(batch: Any) -> Any:
    return _Late(), *batch


@pytest.mark.parametrize("prefetch", [1, 6])
def test_batches_that_are_pickled_late(pack: Any, prefetch: int) -> None:
    from conftest import pixels

    ds = redox.RedoxDataset(pack(), batch_size=32, batched=True, transform=_late)
    for _ in range(2):
        seen = []
        for _, images, labels in torch.utils.data.DataLoader(ds, None, num_workers=2, prefetch_factor=prefetch):
            for image, label in zip(images.numpy(), labels.tolist(), strict=True):
                assert (image == pixels(label)).all()
            seen += labels.tolist()
        assert sorted(seen) == list(range(1000))
