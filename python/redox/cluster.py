"""A demonstration of several nodes: `redox demo --cluster`, or `make demo-cluster`.

Three nodes (network namespaces where allowed) share an epoch of a data set of numbers and exchange samples over QUIC.
One of them is killed on the way. The others get every sample that the plan has for them, in the plan's order; what the
dead one would have sent they read from storage. Wants nothing but this package.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from redox import writer
from redox.dataset import batches_of, open  # noqa: A004 - read as redox.open
from redox.facts import Facts
from redox.meeting import Meeting, Place
from redox.netspace import Nodes
from redox.options import Options
from redox.session import Session
from redox.world import World

__all__ = ["demo", "main", "print_result"]

_SIZE = 512  # numbers of a sample
_PORT = 27430
_PAUSE_S = 0.01  # a step of the training
_DEADLINE_S = 120.0
_LAUNCHERS = ("REDOX_", "TORCHELASTIC_", "GROUP_", "SLURM_", "OMPI_")
_OPTIONS: dict[str, Any] = {"batch_size": 16, "shuffle_seed": 7, "exchange": "uniform"}


def demo(*, nodes: int = 3, samples: int = 6000, kill: bool = True, quiet: bool = False) -> dict[str, Any]:
    """Share an epoch between nodes and kill the last one on the way.

    Args:
        nodes: How many.
        samples: Of the data set.
        kill: Whether one dies.
        quiet: Say nothing on the way.

    Returns:
        "isolated"; "nodes": for each one what it read, pushed and received; "proof": how often the samples came.

    Raises:
        RuntimeError: A node failed, or something came that the plan does not have.
    """

    def say(words: str) -> None:
        if not quiet:
            print(words, flush=True)

    samples -= samples % (nodes * _OPTIONS["batch_size"])  # whole global batches: nothing is padded
    with tempfile.TemporaryDirectory(prefix="redox-cluster-") as folder, Nodes(nodes) as places:
        path = os.path.join(folder, "numbers.redox")
        say(f"packing {samples:,} samples …")
        with writer.Writer(path, chunk_size="64kb", codec="none") as target:
            for number in range(samples):
                target.write({"x": _sample(number)})
        say(
            f"{nodes} nodes, each in a network namespace of its own"
            if places.isolated
            else f"{nodes} nodes on the loopback interface (network namespaces: {places.why_not})"
        )
        doomed = nodes - 1 if kill else None
        ran = _run(places, path, folder, doomed, say)
        return {"isolated": places.isolated, **_judge(path, ran, doomed)}


def _sample(number: int) -> np.ndarray:
    return np.arange(number, number + _SIZE, dtype=np.int32)


# ---- one node ----------------------------------------------------------------------------------------------------


def main() -> None:
    """Be a node: `path out` are the arguments; which node says the environment."""
    path, out = sys.argv[1:]
    world = World.resolve()
    facts = Facts.read(path)
    meeting = Meeting(Place.here(), world, (facts.fingerprint, 0), 0, engine=False)
    session = Session(facts, Options(**_OPTIONS, timeout=60.0), world, meeting)
    with Path(out).open("w", buffering=1) as file:
        for steps, batch in enumerate(batches_of(session), 1):
            for x, number in zip(batch["x"], batch.index.tolist(), strict=True):
                source = int(x[0])
                if not np.array_equal(x, _sample(source)):
                    raise RuntimeError(f"the sample with number {number} has other bytes than were packed")
            file.write(json.dumps({"index": batch.index.tolist()}) + "\n")
            if steps % 8 == 0:
                file.write(json.dumps({"stats": session.stats()}) + "\n")
            time.sleep(_PAUSE_S)
        file.write(json.dumps({"stats": session.stats(), "done": True}) + "\n")
        sys.stdin.readline()  # the others may still want samples of this node


# ---- all of them -------------------------------------------------------------------------------------------------


@dataclass
class _Node:
    """What a node has told."""

    process: subprocess.Popen[str]
    out: Path
    batches: list[list[int]] = field(default_factory=list)
    stats: dict[str, Any] = field(default_factory=dict)
    done: bool = False

    def read(self) -> None:
        """Take what it has written; the last line of a killed one may be cut off."""
        self.batches.clear()
        for line in self.out.read_text().splitlines() if self.out.exists() else []:
            try:
                entry = json.loads(line)
            except ValueError:
                return
            self.stats = entry.get("stats", self.stats)
            self.done = entry.get("done", False)
            if "index" in entry:
                self.batches.append(entry["index"])


def _run(places: Nodes, path: str, folder: str, doomed: int | None, say: Any) -> list[_Node]:
    count = len(places.addresses)
    peers = ",".join(f"{address}:{_PORT + node}" for node, address in enumerate(places.addresses))
    token = secrets.token_hex(16)
    nodes: list[_Node] = []
    try:
        for number in range(count):
            environment = {name: value for name, value in os.environ.items() if not name.startswith(_LAUNCHERS)}
            environment |= {
                "RANK": str(number),
                "WORLD_SIZE": str(count),
                "LOCAL_WORLD_SIZE": "1",
                "REDOX_PEERS": peers,
                "REDOX_TOKEN": token,
                "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")]),
            }
            out = Path(folder) / f"{number}.jsonl"
            command = places.command(number, [sys.executable, "-m", "redox.cluster", path, str(out)])
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            nodes.append(_Node(process, out))
        _watch(nodes, path, doomed, say)
    finally:
        for node in nodes:
            node.process.kill()
            node.process.communicate()
    return nodes


def _watch(nodes: list[_Node], path: str, doomed: int | None, say: Any) -> None:
    """Wait until all are done but the one that is to die, which is killed after a third of its batches."""
    with open(path) as data:
        half = len(data) // _OPTIONS["batch_size"] // len(nodes) // 3
    deadline = time.monotonic() + _DEADLINE_S
    alive = list(nodes)
    while not all(node.done for node in alive):
        for number, node in enumerate(nodes):
            if node not in alive:
                continue
            if node.process.poll() is not None:
                raise RuntimeError(f"node {number} has ended: {node.process.communicate()[1].strip()}")
            node.read()
            if number == doomed and len(node.batches) >= half:
                node.process.kill()
                node.process.wait()
                node.read()
                alive.remove(node)
                say(f"node {number} was killed after its batch {len(node.batches)}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"the nodes are not done after {_DEADLINE_S:.0f} s")
        time.sleep(0.02)


def _judge(path: str, nodes: list[_Node], doomed: int | None) -> dict[str, Any]:
    """Compare what came with the plan."""
    with open(path) as data:
        size, chunks = len(data), data.info.chunks
        world = {"batch_size": _OPTIONS["batch_size"], "world_size": len(nodes), "nodes": len(nodes)}
        steps = size // (world["batch_size"] * world["world_size"])
        plan = [
            data.batch_indices(step, seed=_OPTIONS["shuffle_seed"], exchange=_OPTIONS["exchange"], **world).tolist()
            for step in range(steps)
        ]
    came, lost = np.zeros(size, int), np.zeros(size, int)
    for number, node in enumerate(nodes):
        planned = [batch[number] for batch in plan]
        if node.batches != planned[: len(node.batches)] or (number != doomed and len(node.batches) < steps):
            raise RuntimeError(f"node {number} did not get what the plan has for it")
        for step in range(steps):
            np.add.at(came if step < len(node.batches) else lost, planned[step], 1)
    proof = {
        "samples": size,
        "once": int((came == 1).sum()),
        "twice": int((came > 1).sum()),
        "of_the_dead_node": int((lost == 1).sum()),
        "missing": int((came + lost == 0).sum()),
    }
    if proof["once"] + proof["of_the_dead_node"] != size or proof["twice"] or proof["missing"]:
        raise RuntimeError(f"not every sample came once: {proof}")
    rows = [_row(node, number == doomed) for number, node in enumerate(nodes)]
    return {"chunks": chunks, "nodes": rows, "proof": proof}


def _row(node: _Node, killed: bool) -> dict[str, Any]:
    total, peers = node.stats.get("total", {}), node.stats.get("peers", [])
    return {
        "killed": killed,
        "batches": len(node.batches),
        "samples": sum(map(len, node.batches)),
        "chunks_read": total.get("chunks_read", 0),
        "pushed": sum(peer["samples_out"] for peer in peers),
        "pushed_bytes": sum(peer["bytes_out"] for peer in peers),
        "received": sum(peer["samples_in"] for peer in peers),
        "received_bytes": sum(peer["bytes_in"] for peer in peers),
        "instead": total.get("peer_fallback", 0),
        "wait_peer_s": total.get("wait_peer_s", 0.0),
    }


def print_result(result: dict[str, Any]) -> None:
    """Print what `demo` returned."""
    columns = "node  batches  samples  chunks read   pushed          received        read instead  waited for peers"
    print(columns)
    for number, row in enumerate(result["nodes"]):
        print(
            f"{number:4}  {row['batches']:7}  {row['samples']:7}  {row['chunks_read']:11}"
            f"   {row['pushed']:5} {row['pushed_bytes'] / 1e6:5.1f} MB  {row['received']:5} "
            f"{row['received_bytes'] / 1e6:5.1f} MB  {row['instead']:12}  {row['wait_peer_s']:14.2f} s"
            + ("  killed (as it last said)" if row["killed"] else "")
        )
    proof = result["proof"]
    print(
        f"{result['chunks']} chunks. Of {proof['samples']:,} samples {proof['once']:,} came once, none twice; the "
        f"other {proof['of_the_dead_node']:,} are what the plan had for the dead node's own rank. Every node that lived "
        "got exactly its planned batches, in order, every byte as it was packed."
    )


if __name__ == "__main__":
    main()
