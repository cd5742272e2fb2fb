"""The row `nodes`: is training faster on more nodes that share one slow storage, and together have the memory?

Each node has a network namespace of its own, trains as fast as one alone gets samples from the storage, and has memory
for its share of the data.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness import slow
from harness.data import TINY, collated
from harness.place import MeasureError, Place
from harness.slow import Emulator, Store
from harness.table import Row, at_least

NODES = (1, 2, 4)
EPOCHS = 3
RATE = 20_000_000  # bytes a second: of the storage, and of a node that trains
SHARED = Store("shared", "emulated: 20 MB/s for all nodes", ("-rate", str(RATE // 1_000_000), "-direct"))
SPARE = 32 << 20  # bytes of a node's memory beside its share of the data, for the window and batches
READERS = 2  # worker processes of the plain loader, a node
PORT, LEAST, PATIENCE = 47100, 0.9, 300.0


def measure(place: Place, rounds: int, quick: bool) -> list[Row]:
    """Return the row.

    Raises:
        MeasureError: There can't be such a storage here, or such nodes.
    """
    if slow.missing():
        raise MeasureError(slow.missing())
    samples = 2_048 if quick else 8_192
    folder, source = place.hot / "scaling", place.hot / "scaling-source"
    folder.mkdir()
    place.child("harness.epochs.make", path=str(source), shape=asdict(TINY), samples=samples)
    for peer in ("redox", "files"):
        what: dict[str, Any] = {"peer": peer, "path": str(folder / peer), "source": str(source)}
        place.child("harness.epochs.pack", shape=asdict(TINY), shuffled=True, **what)
    rates: dict[str, list[dict[int, float]]] = {"redox": [], "files": []}
    read = []
    for _ in range(rounds):
        for way, found in rates.items():
            found.append({})
            for count in NODES:
                found[-1][count], share = _run(place, folder, way, count, samples)
                if way == "redox":
                    read.append(share)
    shutil.rmtree(folder)
    shutil.rmtree(source)
    shares = [min(found[count] / found[1] / count for count in NODES) for found in rates["redox"]]
    words = {
        way: ", ".join(f"{number:,.0f}" for number in found[-1].values()) for way, found in rates.items()
    }  # fmt: skip
    note = (
        f"{' / '.join(map(str, NODES))} nodes, {RATE // 1_000_000} MB/s shared, a node trains as fast; from the second "
        f"epoch on, all nodes together: Redox {words['redox']} samples/s, having read {max(read):.2f} times the data "
        f"in {EPOCHS} epochs at most; DataLoader over files, {READERS} workers a node: {words['files']}"
    )
    return [at_least("nodes", shares, "x of one node", LEAST, note)]


def _run(place: Place, folder: Path, way: str, count: int, samples: int) -> tuple[float, float]:
    """Return samples a second of all nodes from the second epoch on, and how often the storage gave the data."""
    from redox.netspace import Nodes

    with Emulator(place, SHARED, folder) as emulator, Nodes(count) as nodes:
        if not nodes.isolated:
            raise MeasureError(f"no network namespaces: {nodes.why_not}")
        emulator.look()
        peers = ",".join(f"{address}:{PORT}" for address in nodes.addresses)
        children = []
        for node in range(count):
            what = {"path": str(emulator.path / way), "way": way, "memory": samples * TINY.size // count + SPARE}
            command = nodes.command(node, place.way("harness.scaling.train", None, what))
            children.append(place.begin(command, _environment(node, count, peers)))
        found = [_told(child, place) for child in children]
        for child in children:  # who is through still serves the others
            child.stdin.close()
            child.wait(30)
            place.ended(child)
        did = emulator.look()
    if not 2 - slow.VOID <= did["off"] <= slow.VOID:
        raise MeasureError("the emulator came late")
    given = sum(it["samples"] for it in found)
    span = max(it["end"] for it in found) - min(it["begin"] for it in found)
    return given / span, did["bytes"] / (samples * TINY.size)


def _environment(node: int, count: int, peers: str) -> dict[str, str]:
    world = {"RANK": str(node), "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": "1"}
    return world | ({"REDOX_PEERS": peers, "REDOX_TOKEN": "a token of these nodes alone"} if count > 1 else {})


def _told(child: subprocess.Popen[str], place: Place) -> dict[str, float]:
    if not select.select([child.stdout], [], [], PATIENCE)[0] or not (line := child.stdout.readline()):
        raise MeasureError(place.last_words(child))
    found: dict[str, float] = json.loads(line)
    return found


# ---- a node ------------------------------------------------------------------------------------------------------


def train(path: str, way: str, memory: int) -> None:
    """In the child: train some epochs, say when the second began and the last ended, and stay until told to go."""
    batches = {"redox": _redox, "files": _files}[way](path, memory)
    samples, begin = 0, 0.0
    for epoch in range(EPOCHS):
        if epoch == 1:
            begin = time.monotonic()
        for batch in batches():
            count = len(batch["x"] if isinstance(batch, dict) else batch[0])
            samples += count if epoch else 0
            time.sleep(count * TINY.size / RATE)
    print(json.dumps({"samples": samples, "begin": begin, "end": time.monotonic()}), flush=True)
    sys.stdin.read()


def _redox(path: str, memory: int) -> Callable[[], Iterable[Any]]:
    import redox

    ds = redox.RedoxDataset(path, batch_size=TINY.batch, batched=True, keep="run", memory_limit=memory, window=32)
    return lambda: ds


def _files(path: str, memory: int) -> Callable[[], Iterable[Any]]:
    from peers.files_peer import Files
    from torch.utils.data import DataLoader, DistributedSampler

    files = Files(Path(path), TINY)
    sampler: Any = DistributedSampler(files, int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"]))
    loader = DataLoader(
        files, TINY.batch, sampler=sampler, num_workers=READERS, persistent_workers=True, collate_fn=collated
    )
    return lambda: loader
