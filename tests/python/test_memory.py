"""The memory bound, measured from outside, and that nothing is left behind."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redox
from conftest import write
from redox import _native
from torch.utils.data import DataLoader

LIMIT = 10 << 20
N = 70_000  # x 3 KB = 20 times the limit


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> str:
    image = np.random.default_rng(0).integers(0, 255, (64, 3, 32, 32), np.uint8)
    samples = ((image[i % 64], i) for i in range(N))
    return write(tmp_path_factory.mktemp("large") / "large.redox", samples, chunk_size="128kb", shuffle=False)


def pss(pid: int) -> int:
    """Proportional set size of a process, bytes."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no Pss")


CODE = """
import gc, sys
import numpy, torch, redox, redox.iterable, redox.loader, redox.mapped, redox.dataset
from torch.utils.data import DataLoader
torch.stack([torch.zeros(3)]); numpy.zeros(5).sum()
print("baseline", flush=True)
sys.stdin.readline()
path, limit = {path!r}, {limit}
options = dict(batch_size=128, memory_limit=limit, window=16, partitions=8)
seen = 0
for batch in {loader}:
    seen += len(batch[1])
print(seen, flush=True)
sys.stdin.readline()
"""

LOADERS = {
    "samples": "DataLoader(redox.RedoxDataset(path, **options), batch_size=128)",
    "batches": "DataLoader(redox.RedoxDataset(path, batched=True, **options), batch_size=None)",
    "redox": "redox.DataLoader(redox.RedoxDataset(path, **options))",
    "redirect": "DataLoader(redox.MapDataset(path, redirect=True, **options), batch_size=128, shuffle=True)",
    "transform": "DataLoader(redox.RedoxDataset(path, transform=torch.clone, **options), batch_size=128)",
    "numpy": "(tuple(b.values()) for b in redox.open(path).batches(128, memory_limit=limit, window=16, partitions=8))",
}


@pytest.mark.parametrize("loader", LOADERS)
def test_peak(large: str, loader: str) -> None:
    code = CODE.format(path=large, limit=LIMIT, loader=LOADERS[loader])
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == "baseline\n"
        baseline = peak = pss(child.pid)
        child.stdin.write("\n")
        child.stdin.flush()
        os.set_blocking(child.stdout.fileno(), False)
        answer = ""
        deadline = time.monotonic() + 60
        while not answer and time.monotonic() < deadline:
            peak = max(peak, pss(child.pid))
            answer = child.stdout.readline()
            time.sleep(0.01)
        assert int(answer) == N
        assert peak - baseline <= LIMIT + (64 << 20), f"{(peak - baseline) >> 20} MiB above the baseline"
    finally:
        child.kill()
        child.communicate()


def test_resident_bytes_stay_under_the_limit(large: str) -> None:
    ds = redox.RedoxDataset(large, batch_size=128, memory_limit=LIMIT, window=16, partitions=8, batched=True)
    for images, _ in ds:
        assert len(images)
    stats = ds.stats()["epoch"]
    assert 0 < stats["resident_peak"] <= LIMIT
    with redox.open(large) as d:
        assert stats["chunks_read"] == d.info.chunks
        assert stats["bytes_read"] <= d.info.stored_bytes * 1.05


def test_a_larger_limit_keeps_chunks_for_the_next_epoch(large: str) -> None:
    ds = redox.RedoxDataset(large, batch_size=128, memory_limit="400mb", batched=True)
    for _ in range(2):
        for _ in ds:
            pass
    assert ds.stats()["epoch"]["chunks_read"] == 0


def test_closing_gives_everything_back_without_the_collector(pack: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    closed: list[int] = []
    new, close = _native.loader_new, _native.loader_close

    def counting_new(*arguments: Any) -> int:
        made.append(new(*arguments))
        return made[-1]

    def counting_close(loader: int, pid: int) -> None:
        closed.append(loader)
        close(loader, pid)

    monkeypatch.setattr(_native, "loader_new", counting_new)
    monkeypatch.setattr(_native, "loader_close", counting_close)

    def use() -> None:
        ds = redox.RedoxDataset(pack(), batch_size=16)
        first, second = iter(ds), iter(ds)
        next(first), next(second)
        kept = [batch["0"] for batch in redox.open(pack()).batches(16)]
        whole = iter(redox.DataLoader(ds))
        next(whole)
        redirected = iter(DataLoader(redox.MapDataset(pack(), redirect=True), batch_size=16))
        next(redirected)
        del first, second, ds, kept, whole, redirected

    use()
    files = len(os.listdir("/proc/self/fd"))
    gc.disable()
    try:
        for _ in range(5):
            use()
            assert sorted(made) == sorted(closed)
    finally:
        gc.enable()
    assert len(made) > 20
    assert len(os.listdir("/proc/self/fd")) <= files + 2
