"""The same global batches, byte for byte, however they are loaded; and from every step a state for another topology."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redox
from conftest import joined, pixels, write

torch = pytest.importorskip("torch")
DataLoader = torch.utils.data.DataLoader

N = 150
GLOBAL = 24  # samples of a global batch, on 1, 2, 3 or 4 ranks
EPOCHS = 2

pytestmark = pytest.mark.filterwarnings("ignore")


def sample(i: int) -> dict[str, Any]:
    """One sample of each kind of field that there is memory for: fixed, ragged, text, bytes, absent."""
    return {
        "image": pixels(i),
        "label": i,
        "row": np.arange(i % 7, dtype=np.float32) * i,
        "text": "ä" * (i % 5),
        "data": bytes(range(i)) if i % 3 else None,
    }


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The same samples, compressed or not."""
    folder = tmp_path_factory.mktemp("same")
    fields = {"image": "uint8[3,8,8]", "label": "int", "row": "float32", "text": "str", "data": "bytes?"}
    return {
        codec: write(folder / f"{codec}.redox", map(sample, range(N)), codec=codec, fields=fields)
        for codec in ("none", "lz4")
    }


def rows(batch: Any) -> list[str]:
    """One digest for each sample of a batch, over all of its bytes."""
    found = []
    for i, label in enumerate(batch["label"].tolist()):
        digest = hashlib.sha256(label.to_bytes(8, "little"))
        for name in ("image", "row", "text", "data"):
            value = batch[name][i]
            digest.update(repr(value).encode() if isinstance(value, str | bytes | None) else bytes(value.numpy()))
        found.append(digest.hexdigest())
    return found


def as_lists(samples: list[Any]) -> dict[str, Any]:
    """Collate samples as whole batches are shown."""
    batch: dict[str, Any] = {name: [sample[name] for sample in samples] for name in samples[0]}
    return {**batch, "label": torch.tensor(batch["label"])}


def loaded(ds: Any, workers: int, method: str | None = None, kind: str = "batched") -> list[list[list[str]]]:
    """The epochs that one rank loads."""
    options: dict[str, Any] = {"num_workers": workers, "multiprocessing_context": method if workers else None}
    if kind == "ours":
        loader: Any = redox.DataLoader(ds, **options)
    elif kind == "batched":
        loader = DataLoader(ds, None, **options)
    else:
        loader = DataLoader(ds, ds.batch_size, collate_fn=as_lists, **options)
    return [[rows(batch) for batch in loader] for _ in range(EPOCHS)]


@pytest.fixture(scope="module")
def reference(paths: Any) -> list[list[list[str]]]:
    """Loaded in this process, and right: each sample once, with the bytes that were packed."""
    ds = redox.RedoxDataset(paths["none"], batch_size=GLOBAL, batched=True)
    epochs = loaded(ds, 0)
    packed = as_lists(
        [{k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in sample(i).items()} for i in range(N)]
    )
    assert [sorted(joined(epoch)) for epoch in epochs] == [sorted(rows(packed))] * EPOCHS
    assert epochs[0] != epochs[1]
    return epochs


@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize(
    ("workers", "method", "kind"),
    [
        (0, None, "samples"), (0, None, "ours"), (1, "fork", "batched"), (2, "fork", "samples"), (2, "fork", "ours"),
        (3, "fork", "batched"), (2, "forkserver", "batched"), (1, "spawn", "samples"),
    ],
)  # fmt: skip
def test_workers(paths: Any, reference: Any, codec: str, workers: int, method: str | None, kind: str) -> None:
    if codec == "lz4" and method not in (None, "fork"):
        pytest.skip("the codec and the start method have nothing to do with each other")
    ds = redox.RedoxDataset(paths[codec], batch_size=GLOBAL, batched=kind != "samples")
    assert loaded(ds, workers, method, kind) == reference


@pytest.mark.parametrize("workers", [0, 2])
def test_memory_limits(paths: Any, reference: Any, workers: int) -> None:
    with pytest.raises(redox.MemoryLimitError) as error:
        loaded(redox.RedoxDataset(paths["lz4"], batch_size=GLOBAL, batched=True, memory_limit=1), workers)
    found = re.search(r"(\d+) are needed", str(error.value))  # PyTorch makes a worker's error anew of its text
    assert found is not None
    for limit in (int(found[1]), "64mb"):
        ds = redox.RedoxDataset(paths["lz4"], batch_size=GLOBAL, batched=True, memory_limit=limit)
        assert loaded(ds, workers) == reference


def _rank(rank: int, world: int, load: Callable[[], Any], file: str) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world))
    Path(file).write_text(json.dumps(load()))


def ranks(world: int, load: Callable[[], Any], folder: Path) -> list[Any]:
    """What each of so many rank processes gives, which are forked from this one."""
    files = [folder / f"{world}-{rank}.json" for rank in range(world)]
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=_rank, args=(rank, world, load, str(file))) for rank, file in enumerate(files)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * world
    return [json.loads(file.read_text()) for file in files]


@pytest.mark.parametrize(("world", "workers"), [(1, 1), (2, 0), (2, 2), (3, 0), (4, 1)])
def test_ranks(paths: Any, reference: Any, tmp_path: Path, world: int, workers: int) -> None:
    ds = redox.RedoxDataset(paths["lz4"], batch_size=GLOBAL // world, batched=True, pad=False)
    epochs = zip(*ranks(world, lambda: loaded(ds, workers), tmp_path), strict=True)
    for parts, wanted in zip(epochs, reference, strict=True):
        together = [joined(part[step] for part in parts if step < len(part)) for step in range(len(wanted))]
        assert together == wanted


# ---- states ----------------------------------------------------------------------------------------------------------

SMALL = 61
TOPOLOGIES = [(1, 8, 0), (1, 5, 2), (2, 4, 1), (3, 3, 0), (1, 20, 1)]  # ranks, batch size of each, workers


def test_from_every_step_to_another_topology(pack: Any, tmp_path: Path) -> None:
    path = pack(SMALL)
    ds = redox.RedoxDataset(path, batch_size=8)
    order = [[label for _, label in ds] for _ in range(4)]

    def states(world: int, workers: int) -> list[list[Any]]:
        loader = redox.DataLoader(redox.RedoxDataset(path, batch_size=8 // world), num_workers=workers)

        def every() -> list[Any]:
            found = [loader.state_dict()]
            for epoch in range(2):
                for _ in loader:
                    found.append(loader.state_dict())
                assert loader.state_dict()["epoch"] == epoch
            return found

        return ranks(world, every, tmp_path)

    saved = {(world, workers): states(world, workers) for world, workers in ((1, 0), (1, 2), (2, 1))}
    plain = saved[1, 0][0]
    positions = [epoch * SMALL + min(SMALL, step * 8) for epoch in range(2) for step in range(9)]
    assert [state["epoch"] * SMALL + state["position"] for state in plain] == sorted(set(positions))
    for every in saved.values():
        for rank in every:
            assert rank == plain  # any rank's state, with any workers

    def rest(state: Any, batch_size: int, workers: int) -> list[Any]:
        again = redox.DataLoader(redox.RedoxDataset(path, batch_size=batch_size, pad=False), num_workers=workers)
        again.load_state_dict(json.loads(json.dumps(state)))
        return [[labels.tolist() for _, labels in again] for _ in range(2)]

    for number, state in enumerate(plain):
        world, batch_size, workers = TOPOLOGIES[number % len(TOPOLOGIES)]
        epoch, position = divmod(state["epoch"] * SMALL + state["position"], SMALL)
        wanted = [order[epoch][position:], order[epoch + 1]]
        got = ranks(world, partial(rest, state, batch_size, workers), tmp_path)
        for parts, some in zip(zip(*got, strict=True), wanted, strict=True):
            cut = [sorted(some[i : i + world * batch_size]) for i in range(0, len(some), world * batch_size)]
            together = [sorted(joined(part[i] for part in parts if i < len(part))) for i in range(len(cut))]
            assert together == cut, (number, world, batch_size, workers)
            assert all(len(part) <= len(cut) for part in parts)
