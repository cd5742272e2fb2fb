"""Worker processes of packing. Pure: no library."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest
from redox.workers import Workers, sendable


@pytest.mark.parametrize("count", [0, 1, 3])
def test_results_come_in_order(count: int) -> None:
    def work(i: int) -> int:
        time.sleep(0.002 * (i % 3))
        return i * i

    with Workers(work, count) as workers:
        assert list(workers.map(iter(range(200)))) == [i * i for i in range(200)]


def test_large_tasks_and_results_do_not_block_each_other() -> None:
    with Workers(lambda data: data + b"!", 2) as workers:
        sent = [bytes([i]) * 300_000 for i in range(120)]
        assert list(workers.map(iter(sent))) == [data + b"!" for data in sent]


def test_tasks_are_taken_only_a_few_batches_ahead() -> None:
    taken = 0

    def tasks() -> Iterator[int]:
        nonlocal taken
        while taken < 10_000:
            yield taken
            taken += 1

    with Workers(lambda i: i, 2) as workers:
        results = workers.map(tasks())
        next(results)
        assert taken < 300


def test_torch_and_random_numbers_are_safe() -> None:
    torch = pytest.importorskip("torch")
    (torch.ones(500, 500) @ torch.ones(500, 500)).sum()  # starts the parent's threads

    def work(_: int) -> tuple[float, float]:
        return float((torch.ones(500, 500) @ torch.ones(500, 500))[0, 0]), float(np.random.rand())

    with Workers(work, 2) as workers:
        results = list(workers.map(iter(range(64))))
    assert {one for one, _ in results} == {500.0}
    assert len({luck for _, luck in results}) == 64


def test_a_killed_worker_is_told() -> None:
    def work(i: int) -> int:
        if i == 40:
            os.kill(os.getpid(), signal.SIGKILL)
        return i

    with Workers(work, 2) as workers, pytest.raises(RuntimeError, match="killed by signal 9"):
        list(workers.map(iter(range(1000))))


def test_closing_does_not_wait_for_slow_work() -> None:
    with Workers(time.sleep, 2) as workers:
        results = workers.map(iter([0.0] * 16 + [60.0] * 100))
        next(results)
        begin = time.monotonic()
    assert time.monotonic() - begin < 1


def test_workers_end_with_their_parent() -> None:
    code = (
        "import os, time\nfrom redox.workers import Workers\n"
        "w = Workers(time.sleep, 2)\nprint(*[p.pid for p in w._processes], flush=True)\n"
        "next(w.map(iter([0.0] * 16 + [60.0] * 100)))\ntime.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pids = [int(p) for p in parent.stdout.readline().split()]
    parent.kill()
    parent.wait()
    parent.stdout.close()
    end = time.monotonic() + 5
    while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
    assert len(pids) == 2
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_errors_that_do_not_pickle_keep_their_words() -> None:
    class LocalError(Exception):
        pass

    assert str(sendable(LocalError("boom"))) == "LocalError: boom"
    assert type(sendable(KeyError("x"))) is KeyError
