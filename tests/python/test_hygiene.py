"""What is left after processes die, in whatever order; and what the others are told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import redox
from redox.crew import Crew, engine_for

torch = pytest.importorskip("torch")
DataLoader = torch.utils.data.DataLoader

_SCRIPT = """
import os, sys, time
import redox
from torch.utils.data import DataLoader

class Slow:
    def __call__(self, image):
        time.sleep(0.005)
        return image

ds = redox.RedoxDataset(sys.argv[1], batch_size=16, transform=Slow() if "slow" in sys.argv else None)
loader = DataLoader(ds, 16, num_workers=int(sys.argv[2]), persistent_workers=True)
batches = iter(loader)
next(batches)
print("ready", *[worker.pid for worker in batches._workers], flush=True)
if "exit" in sys.argv:
    sys.exit()
while True:
    for batch in batches:
        pass
    batches = iter(loader)
"""


class Training:
    """A training process with workers, and the processes around it."""

    def __init__(self, folder: Path, path: str, *words: str) -> None:
        script = folder / "train.py"
        script.write_text(_SCRIPT)
        self.process = subprocess.Popen(
            [sys.executable, str(script), path, "2", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline().split()
        assert line[:1] == ["ready"], self.process.communicate()[1]
        self.workers = [int(pid) for pid in line[1:]]
        self.path = path

    def engines(self) -> list[int]:
        """The engines that serve this test's data set."""
        return engines_of(self.path)

    def all_gone(self, seconds: float) -> bool:
        """Whether after so many seconds nothing of it is left: no process, so no memory, and no socket."""
        self.process.communicate()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not self.engines() and not any(map(_runs, self.workers)):
                return True
            time.sleep(0.05)
        return False


def engines_of(path: str) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                words = Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"redox.engine" in words and path.encode() in words and _runs(int(entry)):
                found.append(int(entry))
    return found


def _runs(pid: int) -> bool:
    try:
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def path(pack: Any, tmp_path: Path) -> str:
    """A data set that no other test's engine serves."""
    link = tmp_path / "mine.redox"
    link.symlink_to(pack())
    return str(link)


@pytest.mark.parametrize("victim", ["trainer", "worker", "engine"])
def test_nothing_is_left_after_kill(path: str, tmp_path: Path, victim: str) -> None:
    training = Training(tmp_path, path, "slow")
    (engine,) = training.engines()
    os.kill({"trainer": training.process.pid, "worker": training.workers[0], "engine": engine}[victim], signal.SIGKILL)
    _, said = training.process.communicate(timeout=30)
    # PyTorch's own workers look for their parent every 5 s.
    assert training.all_gone(7.0)
    if victim == "engine":
        assert "EngineError" in said
        assert str(engine) in said


def test_exit_with_a_live_loader_is_silent(path: str, tmp_path: Path) -> None:
    training = Training(tmp_path, path, "exit")
    _, said = training.process.communicate(timeout=30)
    assert said == ""
    assert training.process.returncode == 0
    assert training.all_gone(5.0)


def test_interrupt_ends_it_all(path: str, tmp_path: Path) -> None:
    training = Training(tmp_path, path)
    begun = time.monotonic()
    training.process.send_signal(signal.SIGINT)
    _, said = training.process.communicate(timeout=30)
    assert time.monotonic() - begun < 5
    assert said.rstrip().endswith("KeyboardInterrupt")
    assert training.all_gone(7.0)


def test_after_the_engine_died_the_next_iteration_goes_on(path: str) -> None:
    ds = redox.RedoxDataset(path, batch_size=16)
    loader = DataLoader(ds, 16, num_workers=2)
    reference = [numbers.tolist() for _, numbers in DataLoader(redox.RedoxDataset(path, batch_size=16), 16)]
    (batches := iter(loader)).__next__()
    os.kill(engines_of(path)[0], signal.SIGKILL)
    with pytest.raises(redox.EngineError, match="engine process"):
        list(batches)
    ds.set_epoch(0)
    assert [numbers.tolist() for _, numbers in loader] == reference
    os.kill(engines_of(path)[0], signal.SIGKILL)
    again = [numbers.tolist() for _, numbers in loader]
    assert again != reference  # but epoch 1, though nobody is left who knew that
    ds.set_epoch(1)
    assert [numbers.tolist() for _, numbers in loader] == again


def test_spawned_workers_go_on_after_the_engine_died(path: str) -> None:
    ds = redox.RedoxDataset(path, batch_size=16)
    loader = DataLoader(ds, 16, num_workers=1, multiprocessing_context="spawn")
    first = [numbers.tolist() for _, numbers in loader]
    os.kill(engines_of(path)[0], signal.SIGKILL)
    second = [numbers.tolist() for _, numbers in loader]
    assert second != first
    alone = redox.RedoxDataset(path, batch_size=16)
    assert [[numbers.tolist() for _, numbers in DataLoader(alone, 16)] for _ in range(2)] == [first, second]


def test_an_engine_that_stands_still(path: str) -> None:
    ds = redox.RedoxDataset(path, batch_size=16, timeout=1.0)
    batches = iter(DataLoader(ds, 16, num_workers=1))
    next(batches)
    (engine,) = engines_of(path)
    os.kill(engine, signal.SIGSTOP)
    try:
        with pytest.raises(redox.StallError, match=str(engine)):
            list(batches)
    finally:
        os.kill(engine, signal.SIGKILL)


def test_a_data_set_that_is_gone_takes_its_engine_along(path: str) -> None:
    ds = redox.RedoxDataset(path, batch_size=16)
    kept = [batch for batch in DataLoader(ds, 16, num_workers=1)]  # noqa: C416 - list() would ask for the length
    assert engines_of(path)
    del ds
    numbers = [n for _, batch in kept for n in batch.tolist()]
    assert sorted(numbers) == list(range(1000))
    del kept
    deadline = time.monotonic() + 5
    while engines_of(path) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not engines_of(path)


_PINNED = """
import os, sys, redox
from torch.utils.data import DataLoader
cpus = sorted(os.sched_getaffinity(0))
rank = int(os.environ["RANK"])
os.sched_setaffinity(0, {cpus[rank]})
ds = redox.RedoxDataset(sys.argv[1], batch_size=16)
batches = iter(DataLoader(ds, 16, num_workers=rank))
next(batches)
print(cpus[rank], flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")
def test_the_engine_runs_where_its_ranks_may(path: str) -> None:
    everyone = {**os.environ, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": path, "MASTER_PORT": "1"}
    pinned, cpus = [], set()
    for rank in range(2):
        command = [sys.executable, "-c", _PINNED, path]
        environment = {**everyone, "RANK": str(rank)}
        pinned.append(subprocess.Popen(command, env=environment, stdin=-1, stdout=subprocess.PIPE, text=True))
        cpus.add(int(pinned[rank].stdout.readline()))  # type: ignore[union-attr]
        (engine,) = engines_of(path)
        for task in Path("/proc", str(engine), "task").iterdir():
            assert _allowed(task) == cpus
    for process in pinned:
        process.communicate()


def _allowed(task: Path) -> set[int]:
    line = next(x for x in (task / "status").read_text().splitlines() if x.startswith("Cpus_allowed_list:"))
    ends = [part.split("-") for part in line.split(":")[1].strip().split(",")]
    return {cpu for end in ends for cpu in range(int(end[0]), int(end[-1]) + 1)}


def test_engines_have_names_of_their_own() -> None:
    world = redox.world.World()
    here, other = Crew(os.getpid()), Crew(os.getppid())
    names = {
        engine_for(world, here, "a", 0), engine_for(world, here, "a", 1), engine_for(world, here, "b", 0),
        engine_for(world, other, "a", 0),
    }  # fmt: skip
    assert len(names) == 4
    assert engine_for(world, here, "a", 0) in names
