"""PyTorch's own ways to train: DDP under torchrun, spawned ranks, SLURM, and the options of its DataLoader."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import redox
from conftest import joined

torch = pytest.importorskip("torch")
DataLoader = torch.utils.data.DataLoader

N = 203
B = 16

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def path(pack: Any) -> str:
    return str(pack(N))


@pytest.fixture(scope="module")
def order(path: str) -> list[list[int]]:
    """The first epochs."""
    ds = redox.RedoxDataset(path, batch_size=B)
    return [[label for _, label in ds] for _ in range(3)]


def labels(batches: Iterable[Any]) -> list[int]:
    return [label for _, some in batches for label in some.tolist()]


def global_batches(ranks: list[list[list[int]]]) -> list[list[int]]:
    """What all ranks together got in each step."""
    return [joined(parts) for parts in zip(*ranks, strict=True)]


def is_epoch(batches: list[list[int]], epoch: list[int]) -> bool:
    """Whether these are the global batches of (the rest of) an epoch, with at most one sample of padding."""
    wanted = [sorted(epoch[i : i + B]) for i in range(0, len(epoch), B)]
    return [sorted(batch) for batch in batches[:-1]] == wanted[:-1] and set(batches[-1]) >= set(wanted[-1])


# ---- several processes -----------------------------------------------------------------------------------------------

_DDP = """
import json, os, sys
import torch, torchvision.transforms.v2
from torch.nn.parallel import DistributedDataParallel
import redox

def train_one_epoch(model, optimizer, loader, seen):
    for image, target in loader:
        loss = torch.nn.functional.cross_entropy(model(image), target % 10)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen.append(target.tolist())
        yield

def main(path, folder, resume):
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    torch.manual_seed(0)
    to_float = torchvision.transforms.v2.ToDtype(torch.float32, scale=True)
    dataset = redox.RedoxDataset(path, batch_size=8, transform=to_float)
    loader = torch.utils.data.DataLoader(dataset, batch_size=8, num_workers=2, pin_memory=True)
    valid = redox.RedoxDataset(path, batch_size=8, transform=to_float, shuffle=False, pad=False, rank=0, world_size=1)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 10)))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    first = 0
    if resume:
        checkpoint = torch.load(folder + "/checkpoint.pt")
        model.load_state_dict(checkpoint["model"])
        dataset.load_state_dict(checkpoint["data"])
        first = checkpoint["data"]["epoch"]
    epochs, evaluated = [], 0
    for epoch in range(first, 2):
        dataset.set_epoch(epoch)
        epochs.append([])
        for _ in train_one_epoch(model, optimizer, loader, epochs[-1]):
            if not resume and epoch == 1 and len(epochs[-1]) == 6 and rank == 0:
                checkpoint = {"model": model.state_dict(), "data": dataset.state_dict(batches=6)}
                torch.save(checkpoint, folder + "/checkpoint.pt")
        if rank == 0:  # evaluates by itself for a while
            with torch.no_grad():
                for image, _ in torch.utils.data.DataLoader(valid, batch_size=8, num_workers=1):
                    evaluated += len(model.module(image))
        torch.distributed.barrier()
    weights = model.module[1].weight.double().sum().item()
    with open(f"{folder}/rank{rank}.json", "w") as file:
        json.dump({"epochs": epochs, "weights": weights, "evaluated": evaluated}, file)
    torch.distributed.destroy_process_group()

main(sys.argv[1], sys.argv[2], sys.argv[3] == "resume")
"""


def results(folder: Path) -> list[Any]:
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]


def finished(command: list[Any]) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.timeout(240)
def test_ddp_under_torchrun(path: str, order: Any, tmp_path: Path) -> None:
    pytest.importorskip("torchvision")
    (tmp_path / "train.py").write_text(_DDP)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    finished([*torchrun, tmp_path / "train.py", path, tmp_path, "begin"])
    ranks = results(tmp_path)
    for epoch in range(2):
        assert is_epoch(global_batches([rank["epochs"][epoch] for rank in ranks]), order[epoch])
    assert [rank["evaluated"] for rank in ranks] == [2 * N, 0]
    assert ranks[0]["weights"] == ranks[1]["weights"]
    finished([*torchrun, tmp_path / "train.py", path, tmp_path, "resume"])
    again = results(tmp_path)
    for before, after in zip(ranks, again, strict=True):
        assert after["epochs"] == [before["epochs"][1][6:]]
        assert after["weights"] == pytest.approx(before["weights"])


def _rank(number: int, ds: Any, folder: str, init: str) -> None:
    """A rank that torch.multiprocessing started: it has the data set as an argument, and no environment."""
    torch.distributed.init_process_group("gloo", init_method=init, rank=number, world_size=2)
    epochs = [[some.tolist() for _, some in DataLoader(ds, 8, num_workers=workers)] for workers in (0, 1)]
    Path(folder, f"rank{number}.json").write_text(json.dumps(epochs))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_ranks_of_torch_multiprocessing(path: str, order: Any, tmp_path: Path, method: str) -> None:
    ds = redox.RedoxDataset(path, batch_size=8)
    assert len(ds) == N  # in this process it is no rank
    torch.multiprocessing.start_processes(
        _rank, (ds, str(tmp_path), f"file://{tmp_path}/meet"), nprocs=2, start_method=method
    )
    ranks = results(tmp_path)
    for epoch in range(2):
        assert is_epoch(global_batches([rank[epoch] for rank in ranks]), order[epoch])
    assert len(ds) == N


_STEP = """
import json, os, sys
import redox
ds = redox.RedoxDataset(sys.argv[1], batch_size=8)
from torch.utils.data import DataLoader
batches = [[some.tolist() for _, some in DataLoader(ds, 8, num_workers=1)]]
with open(f"{sys.argv[2]}/rank{os.environ['SLURM_PROCID']}.json", "w") as file:
    json.dump([batches[0], redox.RedoxDataset(sys.argv[1], batch_size=8).world.nodes], file)
"""


def test_a_slurm_step(path: str, order: Any, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_STEP)
    step = {
        **{name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")},
        "SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0", "SLURM_NODEID": "0", "SLURM_NTASKS": "2",
        "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "2",
    }  # fmt: skip
    tasks = [
        subprocess.Popen(
            [sys.executable, tmp_path / "train.py", path, tmp_path],
            env={**step, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)},
        )
        for rank in range(2)
    ]
    assert [task.wait(100) for task in tasks] == [0, 0]
    ranks = results(tmp_path)
    assert is_epoch(global_batches([rank[0] for rank in ranks]), order[0])
    assert [rank[1] for rank in ranks] == [1, 1]


# ---- options of torch's DataLoader -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"pin_memory": True},
        {"pin_memory": True, "num_workers": 2},
        {"num_workers": 2, "prefetch_factor": 1},
        {"num_workers": 2, "prefetch_factor": 7},
        {"num_workers": 2, "timeout": 60},
        {"num_workers": 8},
        {"num_workers": 8, "persistent_workers": True},
        {"num_workers": 2, "persistent_workers": True, "multiprocessing_context": "forkserver"},
        {"num_workers": 3, "generator": torch.Generator()},
    ],
    ids="-".join,
)
@pytest.mark.parametrize("ours", [False, True])
def test_options_change_nothing(path: str, order: Any, options: Any, ours: bool) -> None:
    ds = redox.RedoxDataset(path, batch_size=B)
    loader = redox.DataLoader(ds, **options) if ours else DataLoader(ds, B, **options)
    assert [labels(loader) for _ in range(2)] == order[:2]


def test_out_of_order(path: str, order: Any) -> None:
    for ours in (False, True):
        ds = redox.RedoxDataset(path, batch_size=B)
        options: dict[str, Any] = {"num_workers": 2, "in_order": False}
        loader = redox.DataLoader(ds, **options) if ours else DataLoader(ds, B, **options)
        for epoch in range(2):
            got = sorted(labels([batch]) for batch in loader)
            assert got == sorted(order[epoch][i : i + B] for i in range(0, N, B))


def _mark(worker: int) -> None:
    info = torch.utils.data.get_worker_info()
    info.dataset.marked = worker


class _Marks(torch.utils.data.IterableDataset):  # type: ignore[misc,name-defined]
    def __init__(self, ds: Any) -> None:
        self.ds, self.marked = ds, -1

    def __iter__(self) -> Any:
        return ((label, self.marked) for _, label in self.ds)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_init_fn(path: str, order: Any, method: str) -> None:
    ds = _Marks(redox.RedoxDataset(path, batch_size=B))
    loader = DataLoader(ds, B, num_workers=2, worker_init_fn=_mark, multiprocessing_context=method)
    batches = list(loader)
    assert [label for some, _ in batches for label in some.tolist()] == order[0]
    assert [set(marks.tolist()) for _, marks in batches] == [{i % 2} for i in range(13)]


def test_a_worker_that_takes_too_long(path: str) -> None:
    """DataLoader's own timeout."""
    ds = redox.RedoxDataset(path, batch_size=B, transform=_Sleep())
    loader = DataLoader(ds, B, num_workers=1, timeout=1)
    with pytest.raises(RuntimeError, match="timed out after 1 seconds"):
        next(iter(loader))


class _Sleep:
    def __call__(self, image: Any) -> Any:
        import time

        time.sleep(4)
        return image
