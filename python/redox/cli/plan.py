"""`redox plan`."""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from .. import _native
from ..errors import StateError
from ..options import whole
from ..state import parse_state
from ..world import MOST_RANKS
from .output import Parsers, command, count, exchange, positive, print_json

_STATE = ("seed", "shuffle", "epoch", "partitions", "window", "keep", "plan_hash", "position")
_MOST = {
    "batch_size": 1 << 24,
    "world_size": MOST_RANKS,
    "window": (1 << 31) - 1,
    "partitions": (1 << 16) - 1,
    "epoch": (1 << 63) - 1,
    "step": (1 << 63) - 1,
    "seed": (1 << 64) - 1,
}


def add(parsers: Parsers) -> None:
    """Declares the subcommand."""
    parser = command(
        parsers,
        "plan",
        run,
        "tell which samples are in a global batch, and on which rank, from the plan alone",
        "redox plan train.redox --step 17431 --batch-size 256 --world-size 16 --nodes 2",
    )
    parser.add_argument("path", help="the data set")
    parser.add_argument(
        "--step", type=count, default=0, metavar="K", help="the global batch; with --state, counted from its position"
    )
    parser.add_argument(
        "--state", default=None, metavar="FILE", help="a state_dict() as JSON: its epoch, order and position"
    )
    parser.add_argument("--batch-size", type=positive, default=256, metavar="N", help="samples a batch and rank")
    parser.add_argument("--world-size", type=positive, default=1, metavar="N", help="ranks")
    parser.add_argument("--nodes", type=positive, default=1, metavar="N", help="nodes that they are on")
    parser.add_argument("--epoch", type=count, default=None, metavar="N", help="which epoch (0)")
    parser.add_argument("--seed", type=count, default=None, metavar="N", help="of the order (0)")
    parser.add_argument("--window", type=positive, default=None, metavar="N", help="chunks open for mixing")
    parser.add_argument("--partitions", type=positive, default=None, metavar="N", help="slices of an epoch")
    parser.add_argument("--shuffle", action=argparse.BooleanOptionalAction, default=None, help="or the stored order")
    parser.add_argument(
        "--exchange",
        type=exchange,
        default=None,
        metavar="HOW",
        help="who gets what: local (default), uniform, off, 0.25",
    )
    parser.add_argument("--keep", choices=("epoch", "run"), default=None, help="how chunks are dealt (epoch)")
    parser.add_argument("--drop-last", action="store_true", default=None, help="without an incomplete last batch")
    parser.add_argument("--keys", action="store_true", default=False, help="tell keys instead of stored numbers")


def run(args: argparse.Namespace) -> int:
    """Prints one line for each rank, or JSON."""
    for name, most in _MOST.items():
        if getattr(args, name) is not None:
            whole(name, getattr(args, name), 0, most)
    dataset = _native.dataset_open(os.path.abspath(args.path))
    try:
        options = _options(args, dataset)
        size = args.batch_size
        numbers = _native.plan_indices(dataset, options, args.step, args.world_size * size)
        ranks = [[n for n in numbers[i : i + size] if n != _native.ABSENT] for i in range(0, len(numbers), size)]
        shown: list[list[Any]] = [list(r) for r in ranks]
        if args.keys:
            shown = [_native.origin(dataset, rank)[1] if rank else [] for rank in ranks]
    finally:
        _native.dataset_close(dataset)
    if args.json:
        print_json({"epoch": options.get("epoch", 0), "step": args.step, "ranks": shown})
    else:
        for number, rank in enumerate(shown):
            print(f"rank {number}: {' '.join(map(str, rank))}")
    return 0


def _options(args: argparse.Namespace, dataset: int) -> dict[str, Any]:
    options: dict[str, Any] = {"batch_size": args.batch_size, "rank": 0}  # all ranks are told, so any will do
    options |= {"world_size": args.world_size, "nodes": args.nodes}
    if args.state is not None:
        options.update(_of_state(args.state, dataset))
    for name in ("epoch", "seed", "window", "partitions", "shuffle", "exchange", "keep", "drop_last"):
        value = getattr(args, name)
        if value is not None:
            options[name] = value
    return options


def _of_state(file: str, dataset: int) -> dict[str, Any]:
    """The plan's options out of a saved state."""
    with open(file, encoding="utf-8") as stream:
        state = json.load(stream)
    try:
        parse_state(state, _native.dataset_info(dataset)["fingerprint"])
    except StateError as error:
        raise StateError(f"{file}: {error}") from None
    if state.get("subset"):
        raise StateError(f"{file} is a state of a run over a subset; Dataset.batch_indices(subset=…) tells its batches")
    return {name: state[name] for name in _STATE if state.get(name) is not None}
