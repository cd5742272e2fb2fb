"""Several nodes, in shapes that are not the usual ones."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redox
from redox import wire
from redox.meeting import Meeting, Place, short
from redox.world import World
from test_cluster import BATCH, environment, free_port, planned, script, told

pytest.importorskip("torch")


def plain(folder: Path, path: str, ranks: list[int], peers: str, **options: Any) -> list[dict[str, Any]]:
    """Run the script with so many ranks on each node; returns what each rank told."""
    program, size = script(folder), sum(ranks)
    places = [(node, local) for node, count in enumerate(ranks) for local in range(count)]
    processes = [
        subprocess.Popen(
            [sys.executable, program, path, str(folder), json.dumps(options)],
            env=environment(
                RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(local), LOCAL_WORLD_SIZE=str(ranks[node]),
                GROUP_RANK=str(node), REDOX_PEERS=peers, REDOX_TOKEN="a token for this test",
            ),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank, (node, local) in enumerate(places)
    ]  # fmt: skip
    try:
        output = "\n".join(process.communicate(timeout=120)[0] for process in processes)
    finally:
        for process in processes:
            process.kill()
    return told(folder, size, output)


def free_ports(count: int) -> int:
    """Return the first of so many ports side by side that are free just now."""
    while True:
        first = min(free_port(socket.SOCK_DGRAM), 65535 - count)
        with contextlib.ExitStack() as taken:
            try:
                for port in range(first, first + count):
                    sock = taken.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                    sock.bind(("127.0.0.1", port))
                return first
            except OSError:
                pass


def test_one_rank_beside_several(pack: Any, tmp_path: Path) -> None:
    path, ranks = pack(900), [2, 1]  # the second node could load without an engine, the first one could not
    peers = f"127.0.0.1:{free_port(socket.SOCK_DGRAM)},127.0.0.1:{free_port(socket.SOCK_DGRAM)}"
    every = plain(tmp_path, path, ranks, peers, all={"nodes": ranks})
    assert [rank.get("got") for rank in every] == [
        [batches] for batches in planned(path, 3, ranks, exchange="uniform")
    ], every
    assert sum(rank["stats"]["total"]["peer_bytes_in"] for rank in every) > 0


def test_two_data_sets_on_neighbouring_ports(pack: Any, tmp_path: Path) -> None:
    first = free_ports(6)
    peers = ",".join(f"127.0.0.1:{first + node}" for node in range(3))
    for rank in plain(tmp_path, pack(900), [1, 1, 1], peers, beside=pack(331)):
        assert "error" not in rank, rank
        assert rank["beside"] == 111  # with two that pad


def test_workers_learn_why_their_engine_is_refused(pack: Any, tmp_path: Path) -> None:
    peers = f"127.0.0.1:{free_port(socket.SOCK_DGRAM)},127.0.0.1:{free_port(socket.SOCK_DGRAM)}"
    options = {"0": {"shuffle_seed": 1}, "1": {"shuffle_seed": 2}}
    for rank in plain(tmp_path, pack(), [1, 1], peers, workers=1, **options):
        assert rank["error"] == "ValueError", rank
        assert "plan" in rank["message"]


def test_a_plan_with_ranks_of_each_node(pack: Any) -> None:
    with redox.open(pack(900)) as data:
        options = {"batch_size": BATCH, "world_size": 3}
        batch = data.batch_indices(2, nodes=[1, 2], **options)
        assert sorted(batch.ravel()) == sorted(data.batch_indices(2, nodes=2, **options).ravel())
        assert (batch != data.batch_indices(2, nodes=[2, 1], **options)).any()
        with pytest.raises(ValueError, match="nodes=\\[1, 1\\]"):
            data.batch_indices(2, nodes=[1, 1], **options)


_STORE = """
import sys, time
from torch.distributed import TCPStore
print(TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False).port, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_store_that_is_lost(how: signal.Signals) -> None:
    process = subprocess.Popen([sys.executable, "-c", _STORE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        meeting = Meeting(
            Place("127.0.0.1", int(process.stdout.readline()), ""), World(0, 2, 2), ("x", 0), 0, engine=False
        )
        threading.Timer(0.5, process.send_signal, [how]).start()
        began = time.monotonic()
        with pytest.raises(redox.PeerError, match=r"store at 127.0.0.1:\d+, where the nodes meet, can't be reached"):
            meeting.hold(b'{"static": false, "met": false}', lambda cards, wait_s: None, 3.0)
        meeting.hold(b'{"static": false, "met": true}', lambda cards, wait_s: None, 3.0)  # goes on without
        assert time.monotonic() - began < 15
        began = time.monotonic()
        meeting.hold(b'{"static": false, "met": true}', lambda cards, wait_s: None, 3.0)
        assert time.monotonic() - began < 1  # not in every epoch
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def second_node(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Options of a rank that the environment, as this process has changed it, gives another node."""
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "REDOX_TLS_CA", "REDOX_INTERFACE"):
        monkeypatch.delenv(name, raising=False)
    ports = (free_port(socket.SOCK_DGRAM), free_port(socket.SOCK_DGRAM))
    monkeypatch.setenv("REDOX_PEERS", ",".join(f"127.0.0.1:{port}" for port in ports))
    monkeypatch.setenv("REDOX_TOKEN", "a token for this test")
    return {"batch_size": BATCH, "rank": 0, "world_size": 2, "nodes": 2, "timeout": 2.0}


def test_an_environment_that_the_program_has_set(
    pack: Any, second_node: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(redox.StallError, match=r"with node 1 at 127\.0\.0\.1"):
        next(iter(redox.RedoxDataset(pack(), **second_node)))
    monkeypatch.setenv("REDOX_TOKEN", "short")
    with pytest.raises(ValueError, match="REDOX_TOKEN: the token has 5 bytes"):
        next(iter(redox.RedoxDataset(pack(), **second_node)))


def test_the_memory_that_is_said_to_be_needed_is_enough(tmp_path: Path, second_node: dict[str, Any]) -> None:
    path = str(tmp_path / "large.redox")
    with redox.Writer(path, chunk_size="256kb", codec="none") as target:
        for number in range(320):
            target.write({"x": np.full(4096, number)})
    with pytest.raises(redox.MemoryLimitError) as refused:
        next(iter(redox.RedoxDataset(path, memory_limit="1mb", **second_node)))
    assert refused.value.given == 1 << 20
    assert refused.value.needed is not None
    assert refused.value.needed > 2 << 20  # of which the connections take more than of 1 MiB
    with pytest.raises(redox.StallError):  # there is nobody else
        next(iter(redox.RedoxDataset(path, memory_limit=refused.value.needed, **second_node)))


def test_the_cards_of_many_nodes_fit_into_a_message() -> None:
    nodes = 500
    terms = {"release": "1.0.0", "dataset": "f" * 64, "seed": 7, "plan_hash": "a" * 64, "ranks": [8] * nodes}
    card = {"address": "10.123.123.123:54321", "fingerprint": "b" * 64, "incarnation": 1 << 51, "seal": "c" * 44}
    cards = [{"node": node, **card, "terms": terms, "static": False, "complete": False} for node in range(nodes)]
    cards[3]["terms"] = {**terms, "seed": 8}
    told = short([json.dumps(one).encode() for one in cards], terms)
    assert len(told) < wire.MAX - 100
    listed = json.loads(told)
    assert listed[3] == {"node": 3, **card, "terms": {**terms, "seed": 8}}
    assert listed[4] == {"node": 4, **card}
