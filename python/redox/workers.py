"""Worker processes for packing: Python work on samples, results in the order of the tasks.

They are forked where the system can, so that data sets, lambdas and notebooks need no pickling and scripts no
`if __name__ == "__main__"`; they never touch the C library, so that a Go runtime in the parent does not matter. They
end with their parent, however it ends.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import pickle
import queue
import random
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_BATCH = 16  # tasks sent at a time
_AHEAD = 3  # batches that each worker has in hand
_WATCH_S = 0.5  # how often a worker looks whether its parent lives


class Workers(Generic[T, R]):
    """Processes that run one function.

    Args:
        work: called in the workers with one task; must not raise.
        count: how many processes; 0 runs everything here.
    """

    def __init__(self, work: Callable[[T], R], count: int) -> None:
        self._work = work
        self._pipes: list[tuple[Connection, Connection]] = []  # (tasks to it, results from it)
        self._processes: list[Any] = []
        method = "fork" if "fork" in multiprocessing.get_all_start_methods() else None
        context = multiprocessing.get_context(method)
        for place in range(count):
            tasks_out, tasks_in = context.Pipe(duplex=False)
            results_out, results_in = context.Pipe(duplex=False)
            process = context.Process(  # type: ignore[attr-defined]
                target=_serve, args=(work, tasks_out, results_in, os.getpid(), place), daemon=True, name="redox-pack"
            )
            process.start()
            tasks_out.close()
            results_in.close()
            self._pipes.append((tasks_in, results_out))
            self._processes.append(process)

    def map(self, tasks: Iterator[T]) -> Iterator[R]:
        """Yields `work(task)` for every task, in order, while the workers are a few batches ahead."""
        if not self._pipes:
            yield from map(self._work, tasks)
            return
        places = itertools.cycle(range(len(self._pipes)))
        waiting: deque[int] = deque()
        while batch := list(itertools.islice(tasks, _BATCH)):
            if len(waiting) == _AHEAD * len(self._pipes):
                yield from self._receive(waiting.popleft())
            place = next(places)
            self._send(place, batch)
            waiting.append(place)
        while waiting:
            yield from self._receive(waiting.popleft())

    def _send(self, place: int, batch: list[T]) -> None:
        try:
            self._pipes[place][0].send(batch)
        except BrokenPipeError:
            raise self._died(place) from None

    def _receive(self, place: int) -> list[R]:
        try:
            results: list[R] = self._pipes[place][1].recv()
        except (EOFError, ConnectionResetError):
            raise self._died(place) from None
        return results

    def _died(self, place: int) -> RuntimeError:
        process = self._processes[place]
        process.join(1)
        code = process.exitcode
        how = (
            f"was killed by signal {-code} (out of memory?)"
            if code is not None and code < 0
            else f"ended with code {code}"
        )
        return RuntimeError(f"a packing worker {how}; workers=0 packs in this process and shows why")

    def close(self) -> None:
        """Ends the workers at once, whatever they do."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()
            process.close()
        for pair in self._pipes:
            for pipe in pair:
                pipe.close()
        self._pipes, self._processes = [], []

    def __enter__(self) -> Workers[T, R]:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _serve(work: Callable[[Any], Any], tasks: Connection, results: Connection, parent: int, place: int) -> None:
    """A worker's life."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    _settle(place)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    # Tasks are taken in at once: were a worker to take the next ones only after its results were taken, it and a parent
    # that sends to it would wait for each other as soon as both messages are larger than their pipes.
    threading.Thread(target=_take, args=(tasks, inbox), daemon=True).start()
    with contextlib.suppress(BrokenPipeError):
        while (batch := inbox.get()) is not None:
            results.send([work(task) for task in batch])


def _settle(place: int) -> None:
    """Makes what was inherited fit for a worker: random numbers of its own, and no threads that a fork has lost."""
    random.seed(place)
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        numpy.random.seed(place)
    if torch is not None:
        torch.manual_seed(place)
        torch.set_num_threads(1)  # a pool of OpenMP threads that the parent had started would be waited for, forever


def _take(tasks: Connection, inbox: queue.SimpleQueue[Any]) -> None:
    try:
        while True:
            inbox.put(tasks.recv())
    except (EOFError, OSError):
        inbox.put(None)


def _watch(parent: int) -> None:
    """Ends this process when its parent is gone: siblings hold copies of its pipes, so these alone would not tell."""
    while os.getppid() == parent:
        time.sleep(_WATCH_S)
    os._exit(1)


def sendable(error: Exception) -> Exception:
    """The error itself if it survives pickling, else a RuntimeError that says the same."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # an exception's own pickling may raise anything
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
