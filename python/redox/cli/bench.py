"""`redox bench`: this data set against the same samples as plain files, on this machine."""

from __future__ import annotations

import argparse
import itertools
import os
import random
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ..dataset import Dataset
from ..facts import local_path
from ..settings import cores
from .output import Parsers, command, positive, print_json, print_table, show_bytes

_MOST_FILES = 20_000
_MOST_BYTES = 1 << 30
_FOLDER = 1000  # files in one folder


def add(parsers: Parsers) -> None:
    """Declares the subcommand."""
    parser = command(
        parsers,
        "bench",
        run,
        "measure how fast this data set loads here, against the same samples as plain files",
        "redox bench train.redox --batch-size 256 --seconds 10",
    )
    parser.add_argument("path", help="the data set")
    parser.add_argument("--batch-size", type=positive, default=256, metavar="N", help="samples a batch")
    parser.add_argument(
        "--seconds", type=positive, default=5, metavar="S", help="how long each measurement takes at most"
    )
    parser.add_argument(
        "--tmp", default=None, metavar="DIR", help="where the plain files go (by default beside the data set)"
    )


def run(args: argparse.Namespace) -> int:
    """Measures; the files are removed afterwards."""
    path = local_path(args.path)
    result: dict[str, Any] = {"path": path, "batch_size": args.batch_size, "cores": cores()}
    with Dataset(path) as data:
        place = args.tmp or os.path.dirname(path)
        with tempfile.TemporaryDirectory(prefix=".redox-bench-", dir=place) as folder:
            names, written = _write_files(data, folder)
            result |= {"files": len(names), "files_bytes": written, "of_samples": len(data)}
            for threads in sorted({1, 4, 2 * cores()}):
                result[f"files_{threads}_threads"] = _rate(_read_files(names, threads, args.batch_size), args.seconds)
        _rate(_batches(data, args.batch_size, 0), args.seconds)  # as often read before as the files
        result["redox"] = _rate(_batches(data, args.batch_size, 1), args.seconds)
    best = max(v["samples_per_s"] for k, v in result.items() if k.startswith("files_") and isinstance(v, dict))
    result["times_best_files"] = result["redox"]["samples_per_s"] / best if best else None
    if args.json:
        print_json(result)
    else:
        _print(result)
    return 0


def _write_files(data: Dataset, folder: str) -> tuple[list[str], int]:
    """Writes the first samples, one file each, in folders of a thousand."""
    names: list[str] = []
    total = 0
    for number in range(min(len(data), _MOST_FILES)):
        content = _bytes(data[number])
        inside = os.path.join(folder, str(number // _FOLDER))
        if number % _FOLDER == 0:
            os.mkdir(inside)
        names.append(os.path.join(inside, str(number)))
        with open(names[-1], "wb") as file:
            file.write(content)
        total += len(content)
        if total >= _MOST_BYTES:
            break
    return names, total


def _bytes(value: Any) -> bytes:
    """A sample's content, in a row."""
    if isinstance(value, dict):
        return b"".join(map(_bytes, value.values()))
    if isinstance(value, (tuple, list)):
        return b"".join(map(_bytes, value))
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    return value.tobytes() if isinstance(value, (np.ndarray, np.generic)) else str(value).encode()


def _read_files(names: list[str], threads: int, batch_size: int) -> Iterator[int]:
    """Reads the files in random order, again and again; yields the files of each batch."""
    order = random.Random(0)
    with ThreadPoolExecutor(threads) as pool:
        while True:
            shuffled = order.sample(names, len(names))
            for i in range(0, len(shuffled), batch_size):
                part = shuffled[i : i + batch_size]
                step = -(-len(part) // threads)
                for _ in pool.map(_read, [part[k : k + step] for k in range(0, len(part), step)]):
                    pass
                yield len(part)


def _read(names: list[str]) -> list[bytes]:
    found = []
    for name in names:
        with open(name, "rb", buffering=0) as file:
            found.append(file.read())
    return found


def _batches(data: Dataset, batch_size: int, first: int) -> Iterator[int]:
    for epoch in itertools.count(first):
        for batch in data.batches(batch_size, epoch=epoch):
            yield len(batch.index)


def _rate(batches: Iterator[int], seconds: float) -> dict[str, float]:
    """Samples a second, from the first batch on."""
    begin = time.perf_counter()
    next(batches)
    started = time.perf_counter()
    samples = 0
    for count in batches:
        samples += count
        if time.perf_counter() - started >= seconds:
            break
    spent = time.perf_counter() - started
    return {"samples_per_s": samples / spent, "first_batch_s": started - begin}


def _print(result: dict[str, Any]) -> None:
    rows: list[tuple[str, Any]] = [
        (
            "samples",
            f"{result['of_samples']:,}; {result['files']:,} of them as files, {show_bytes(result['files_bytes'])}",
        )
    ]
    for name, value in result.items():
        if isinstance(value, dict):
            label = name.replace("files_", "files, ").replace("_", " ")
            rows.append(
                (label, f"{value['samples_per_s']:,.0f} samples/s, first batch after {value['first_batch_s']:.3f} s")
            )
    rows.append(("ratio", f"{result['times_best_files']:.1f} times the best rate of files"))
    print_table(rows)
    print(
        "Both were read before, so that a data set which fits into free memory is measured from there, not from disk."
    )
