"""Several nodes share the epochs: real processes, real sockets."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import redox
from redox import cluster
from redox.netspace import Nodes

torch = pytest.importorskip("torch")

BATCH = 16

# Reads epochs and writes down what came; at its end it waits for all others, which may want samples of it.
_SCRIPT = """
import json, os, sys, time, traceback
import redox
path, out, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
plan = {"batch_size": 16, "timeout": 30.0, "exchange": "uniform", **options.get("all", {})}
plan.update(options.get(str(rank), {}))
workers, epochs, stop = options.get("workers", 0), options.get("epochs", 1), options.get("stop")
data = options.get(f"path{rank}", path)
try:
    if options.get("absent") == rank:
        time.sleep(plan["timeout"] + 4)
        sys.exit()
    ds = redox.RedoxDataset(data, with_index=True, **plan)
    if "state" in options:
        ds.load_state_dict(options["state"])
    loader = redox.DataLoader(ds, num_workers=workers)
    got = []
    for epoch in range(epochs):
        got.append([])
        for batch in loader:
            got[-1].append(batch[-1].tolist())
            if options.get("pause"):
                with open(os.path.join(out, f"{rank}.step"), "w") as file:
                    file.write(str(len(got[-1])))
                time.sleep(options["pause"])
            if len(got[-1]) == stop:
                break
    told = {"got": got, "stats": ds.stats(), "state": loader.state_dict()}
    if "beside" in options:
        told["beside"] = sum(1 for _ in redox.RedoxDataset(options["beside"], **plan))
except BaseException as error:
    told = {"error": type(error).__name__, "bases": [c.__name__ for c in type(error).__mro__], "message": str(error)}
    traceback.print_exc()
with open(os.path.join(out, f"{rank}.tmp"), "w") as file:
    json.dump(told, file)
os.rename(os.path.join(out, f"{rank}.tmp"), os.path.join(out, f"{rank}.json"))
others = [os.path.join(out, f"{r}.json") for r in range(world) if r not in (rank, options.get("dies"))]
for _ in range(600):
    if "error" in told or all(map(os.path.exists, others)):
        break
    time.sleep(0.05)
"""


def free_port(kind: int = socket.SOCK_STREAM) -> int:
    with socket.socket(socket.AF_INET, kind) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def environment(**more: str) -> dict[str, str]:
    launchers = ("REDOX_", "TORCHELASTIC_", "GROUP_", "SLURM_", "OMPI_", "MASTER_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(launchers)}
    return {**kept, "OMP_NUM_THREADS": "1", **more}


def script(folder: Path) -> str:
    file = folder / "train.py"
    file.write_text(_SCRIPT)
    return str(file)


def told(folder: Path, ranks: int, output: str = "") -> list[dict[str, Any]]:
    missing = [rank for rank in range(ranks) if not (folder / f"{rank}.json").exists()]
    assert not missing, output
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]


def torchrun(folder: Path, path: str, per_node: int, nodes: int = 2, **options: Any) -> list[dict[str, Any]]:
    """Run the script under one agent a node; returns what each rank told."""
    folder.mkdir(exist_ok=True)
    port, program = free_port(), script(folder)
    agents = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "torch.distributed.run", f"--nnodes={nodes}", f"--node-rank={node}"),
                *(f"--nproc-per-node={per_node}", "--master-addr=127.0.0.1", f"--master-port={port}"),
                *(program, path, str(folder), json.dumps(options)),
            ],
            env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for node in range(nodes)
    ]  # fmt: skip
    try:
        output = "\n".join(agent.communicate(timeout=150)[0] for agent in agents)
    finally:
        for agent in agents:
            agent.kill()
    return told(folder, nodes * per_node, output)


class Plain:
    """Processes that know each other by REDOX_PEERS, one a node."""

    def __init__(self, folder: Path, path: str, nodes: int = 2, tokens: tuple[str, ...] = (), **options: Any) -> None:
        self.folder, self.nodes = folder, nodes
        program = script(folder)
        peers = ",".join(f"127.0.0.1:{free_port(socket.SOCK_DGRAM)}" for _ in range(nodes))
        self.processes = [
            subprocess.Popen(
                [sys.executable, program, path, str(folder), json.dumps(options)],
                env=environment(
                    RANK=str(node), WORLD_SIZE=str(nodes), REDOX_PEERS=peers,
                    REDOX_TOKEN=tokens[node] if tokens else "a token for this test",
                ),
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )
            for node in range(nodes)
        ]  # fmt: skip

    def results(self) -> list[dict[str, Any]]:
        try:
            output = "\n".join(process.communicate(timeout=120)[0] for process in self.processes)
        finally:
            for process in self.processes:
                process.kill()
        return told(self.folder, self.nodes, output)

    def step(self, node: int) -> int:
        """How many batches a node has got."""
        try:
            return int((self.folder / f"{node}.step").read_text() or 0)
        except FileNotFoundError:
            return 0


def planned(path: str, ranks: int, nodes: int | list[int], epoch: int = 0, **options: Any) -> list[list[list[int]]]:
    """The batches of each rank in an epoch, as the plan has them."""
    with redox.open(path) as data:
        steps = -(-len(data) // (BATCH * ranks))
        batches = [
            data.batch_indices(step, epoch=epoch, batch_size=BATCH, world_size=ranks, nodes=nodes, **options).tolist()
            for step in range(steps)
        ]
    return [[[n for n in batch[rank] if n >= 0] for batch in batches] for rank in range(ranks)]


@pytest.mark.parametrize(("per_node", "workers", "exchange"), [(1, 0, "uniform"), (2, 0, "local"), (1, 2, 0.5)])
def test_nodes_share_the_epochs(pack: Any, tmp_path: Path, per_node: int, workers: int, exchange: str | float) -> None:
    path = pack(1600)
    ranks = torchrun(tmp_path, path, per_node, workers=workers, epochs=2, all={"exchange": exchange})
    for epoch in range(2):
        assert [rank["got"][epoch] for rank in ranks] == planned(path, len(ranks), 2, epoch, exchange=exchange)
        assert sorted(n for rank in ranks for batch in rank["got"][epoch] for n in batch) == list(range(1600))
    # Each node reads the chunks that are at home there, and what crosses was sent: nothing is read twice.
    totals = [rank["stats"]["total"] for rank in ranks]
    chunks = redox.open(path).info.chunks
    assert sum(total["chunks_read"] + total["chunk_hits"] for total in totals) >= 2 * chunks
    assert sum(total["chunks_read"] for total in totals) <= 3 * chunks  # two epochs, and the third's first ones
    peers = [rank["stats"]["peers"] for rank in ranks]
    assert all(len(of_rank) == 1 and of_rank[0]["connected"] for of_rank in peers)
    if exchange != "local":
        assert sum(total["peer_bytes_in"] for total in totals) > 0
        assert peers[0][0]["bytes_out"] > 0
        assert peers[-1][0]["bytes_in"] > 0


def test_a_state_goes_to_other_numbers_of_nodes(pack: Any, tmp_path: Path) -> None:
    path = pack(1600)
    first = torchrun(tmp_path / "first", path, 1, stop=20)
    states = [rank["state"] for rank in first]
    assert states[0] == states[1]
    alone = redox.RedoxDataset(path, batch_size=2 * BATCH, with_index=True, batched=True)
    whole = [sorted(batch[-1].tolist()) for batch in alone]
    (tmp_path / "second").mkdir()
    rest = Plain(tmp_path / "second", path, 3, state=states[0]).results()
    got = [n for rank in first for batch in rank["got"][0] for n in batch]
    got += [n for rank in rest for batch in rank["got"][0] for n in batch]
    padding = (BATCH * 3 - (1600 - 2 * 20 * BATCH) % (BATCH * 3)) % 3
    assert len(got) == 1600 + padding
    assert set(got) == set(range(1600))
    for step in range(20):
        assert sorted(n for rank in first for n in rank["got"][0][step]) == whole[step]


def test_the_others_go_on_when_a_node_dies(pack: Any, tmp_path: Path) -> None:
    path = pack(8000)  # more than the others have been sent when it dies
    nodes = Plain(tmp_path, path, 3, pause=0.02, dies=2)  # long enough for the others to believe that it is dead
    deadline = time.monotonic() + 60
    while nodes.step(2) < 6:
        assert time.monotonic() < deadline, "node 2 does not come to its sixth batch"
        assert all(process.poll() is None for process in nodes.processes), nodes.processes[0].communicate()[0]
        time.sleep(0.01)
    nodes.processes[2].kill()
    nodes.processes[2].communicate()
    output = [process.communicate(timeout=120)[0] for process in nodes.processes[:2]]
    survivors = told(tmp_path, 2, "\n".join(output))
    plan = planned(path, 3, 3, exchange="uniform")
    for rank in range(2):
        assert survivors[rank]["got"][0] == plan[rank]
        assert survivors[rank]["stats"]["total"]["peer_fallback"] > 0
        assert [peer["node"] for peer in survivors[rank]["stats"]["peers"] if not peer["connected"]] == [2]


def test_another_seed_is_refused_by_name(pack: Any, tmp_path: Path) -> None:
    options = {"0": {"shuffle_seed": 1}, "1": {"shuffle_seed": 2}}
    for rank in torchrun(tmp_path / "cards", pack(), 1, **options):
        assert rank["error"] == "ValueError", rank
        assert "shuffle_seed=" in rank["message"]
    (tmp_path / "peers").mkdir()
    for rank in Plain(tmp_path / "peers", pack(), **options).results():  # there are no cards to compare
        assert rank["error"] == "ValueError", rank
        assert "plan" in rank["message"]


def test_another_data_set_is_refused_by_name(pack: Any, tmp_path: Path) -> None:
    for rank in torchrun(tmp_path, pack(), 1, path1=pack(997)):
        assert rank["error"] == "ValueError", rank
        assert "loads another data set" in rank["message"]


def test_a_wrong_token_is_refused(pack: Any, tmp_path: Path) -> None:
    ranks = Plain(
        tmp_path, pack(), tokens=("one token for node 0", "another one for node 1"), all={"timeout": 12.0}
    ).results()
    for rank in ranks:
        assert rank["error"] == "PeerError", rank
        assert "certificate" in rank["message"]


def test_a_short_token_is_refused(pack: Any, tmp_path: Path) -> None:
    for rank in Plain(tmp_path, pack(), tokens=("short", "short")).results():
        assert rank["error"] == "ValueError", rank
        assert "REDOX_TOKEN" in rank["message"]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_node_that_does_not_come_is_named(pack: Any, tmp_path: Path, workers: int) -> None:
    (tmp_path / "1.json").write_text("{}")  # nobody waits for it
    rank = torchrun(tmp_path, pack(), 1, absent=1, all={"timeout": 4.0}, workers=workers)[0]
    assert "TimeoutError" in rank["bases"], rank
    assert "node 1" in rank["message"]


def test_nowhere_to_meet(pack: Any) -> None:
    ds = redox.RedoxDataset(pack(), batch_size=BATCH, rank=0, world_size=2, nodes=2)
    with pytest.raises(ValueError, match=r"torchrun.*REDOX_PEERS.*exchange='off'"):
        next(iter(ds))


def test_nodes_in_namespaces() -> None:
    with Nodes(2) as nodes:
        if not nodes.isolated:
            pytest.skip(f"network namespaces are not allowed here: {nodes.why_not}")
    result = cluster.demo(samples=1500, quiet=True)
    assert result["isolated"]
    assert result["proof"]["once"] + result["proof"]["of_the_dead_node"] == result["proof"]["samples"]
    assert sum(node["received"] for node in result["nodes"][:2]) > 0
