"""Several ranks of one node draw from one engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redox
from redox import client

torch = pytest.importorskip("torch")

# Ranks that train keep step; these wait for each other where they begin and before they end.
_SCRIPT = """
import json, os, sys, time
import redox
from torch.utils.data import DataLoader
path, out, workers, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
rank = int(os.environ["RANK"])

def meet(what):
    while not all(os.path.exists(os.path.join(out, f"{other}.{what}")) for other in range(2)):
        time.sleep(0.001)

open(os.path.join(out, f"{rank}.here"), "w").close()
meet("here")
if rank == 0 and seed == "looks":
    looked = redox.MapDataset(path)
    assert sum(len(numbers) for _, numbers in DataLoader(looked, 16, num_workers=workers)) == len(looked)
ds = redox.RedoxDataset(path, batch_size=16, shuffle_seed=rank if seed == "own" else 0)
epochs = [[numbers.tolist() for _, numbers in DataLoader(ds, 16, num_workers=workers)] for _ in range(2)]
with open(os.path.join(out, f"{rank}.json"), "w") as file:
    json.dump({"epochs": epochs, "stats": ds.stats()["total"], "len": len(ds)}, file)
meet("json")
"""


def launch(tmp_path: Path, path: str, workers: int, seed: str = "same") -> subprocess.CompletedProcess[str]:
    script = tmp_path / "train.py"
    script.write_text(_SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    return subprocess.run(
        [*command, path, str(tmp_path), str(workers), seed], capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize(("workers", "how"), [(0, "same"), (1, "same"), (1, "looks")])
def test_ranks_share_the_reading(pack: Any, tmp_path: Path, workers: int, how: str) -> None:
    """Also if one of them looks at all samples by itself before."""
    path = pack()
    done = launch(tmp_path, path, workers, how)
    assert done.returncode == 0, done.stderr
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    single = redox.RedoxDataset(path, batch_size=32, batched=True)
    for epoch in range(2):
        together = [a + b for a, b in zip(ranks[0]["epochs"][epoch], ranks[1]["epochs"][epoch], strict=True)]
        for got, (_, wanted) in zip(together, single, strict=True):
            assert sorted(got) == sorted(wanted.tolist())
    chunks = redox.open(path).info.chunks
    assert sum(rank["stats"]["chunks_read"] for rank in ranks) <= 2 * chunks  # two epochs
    assert [rank["len"] for rank in ranks] == [500, 500]


def test_a_seed_of_its_own_is_refused(pack: Any, tmp_path: Path) -> None:
    done = launch(tmp_path, pack(), 0, "own")
    assert done.returncode != 0
    assert "shuffle_seed" in done.stderr


_LAGGARD = """
import json, sys
import redox
path, rank = sys.argv[1], int(sys.argv[2])
ds = redox.RedoxDataset(path, batch_size=16, rank=rank, world_size=2, nodes=1, batched=True)
batches = iter(ds)
got = [next(batches)[1].tolist()]
print("begun", flush=True)
sys.stdin.readline()
got += [numbers.tolist() for _, numbers in batches]
print(json.dumps(got), flush=True)
sys.stdin.readline()
"""


def test_nobody_waits_for_a_rank_that_lags(pack: Any, tmp_path: Path) -> None:
    path = pack()
    others = _engines(path)  # of this process, for other tests' data sets
    script = tmp_path / "rank.py"
    script.write_text(_LAGGARD)
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), path, str(rank)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]

    def say(rank: subprocess.Popen[str]) -> None:
        assert rank.stdin is not None
        rank.stdin.write("\n")
        rank.stdin.flush()

    def hear(rank: subprocess.Popen[str]) -> str:
        assert rank.stdout is not None
        return rank.stdout.readline()

    try:
        assert [hear(rank) for rank in ranks] == ["begun\n"] * 2
        got = []
        for rank in reversed(ranks):  # one takes its whole epoch while the other one stands still
            say(rank)
            got.insert(0, json.loads(hear(rank)))
        assert len(_engines(path) - others) == 1
    finally:
        for rank in ranks:
            rank.communicate("\n", timeout=30)
    single = redox.RedoxDataset(path, batch_size=32, batched=True)
    for (a, b), (_, wanted) in zip(zip(*got, strict=True), single, strict=True):
        assert sorted(a + b) == sorted(wanted.tolist())


def test_an_engine_that_another_rank_has_just_started() -> None:
    name = client.engine_name("test", os.getpid())
    silent = client._attempt(name, "nothing")  # starts it, and does not say yet what it is to serve
    assert silent is not None
    assert client.connection_to(name, 0) is None


def _engines(path: str) -> set[Path]:
    return {entry for entry in Path("/proc").glob("[0-9]*/cmdline") if _serves(entry, path)}


def _serves(cmdline: Path, path: str) -> bool:
    try:
        words = cmdline.read_bytes().split(b"\0")
    except OSError:
        return False
    return b"redox.engine" in words and path.encode() in words
