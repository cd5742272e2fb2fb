"""`redox simulate`."""

from __future__ import annotations

import argparse
import sys

from ..simulating import simulate
from .output import Parsers, command, count, exchange, positive, print_json, print_table, size_or_auto


def add(parsers: Parsers) -> None:
    """Declares the subcommand."""
    parser = command(
        parsers,
        "simulate",
        run,
        "tell what an epoch would cost (reads, memory, mixing, network) without reading data",
        "redox simulate train.redox --batch-size 256 --world-size 16 --nodes 2",
    )
    parser.add_argument("path", help="the data set")
    parser.add_argument("--batch-size", type=positive, default=256, metavar="N", help="samples a batch and rank")
    parser.add_argument("--world-size", type=positive, default=1, metavar="N", help="ranks")
    parser.add_argument("--nodes", type=positive, default=1, metavar="N", help="nodes that they are on")
    parser.add_argument(
        "--memory-limit", type=size_or_auto, default="auto", metavar="SIZE", help="that a node may hold"
    )
    parser.add_argument("--window", type=positive, default=None, metavar="N", help="chunks open for mixing")
    parser.add_argument("--partitions", type=positive, default=None, metavar="N", help="slices of an epoch")
    parser.add_argument("--epoch", type=count, default=0, metavar="N", help="which one")
    parser.add_argument("--seed", type=count, default=0, metavar="N", help="of the order")
    parser.add_argument("--shuffle", action=argparse.BooleanOptionalAction, default=True, help="or the stored order")
    parser.add_argument(
        "--exchange", type=exchange, default="local", metavar="HOW", help="who gets what: local, uniform, off, 0.25"
    )


def run(args: argparse.Namespace) -> int:
    """Plans an epoch."""
    report = simulate(
        args.path,
        batch_size=args.batch_size,
        world_size=args.world_size,
        nodes=args.nodes,
        memory_limit=args.memory_limit,
        window=args.window,
        partitions=args.partitions,
        epoch=args.epoch,
        seed=args.seed,
        shuffle=args.shuffle,
        exchange=args.exchange,
    )
    if args.json:
        print_json(report.to_json())
    else:
        print_table([(name.replace("_", " "), value) for name, value in report.items() if name != "advice"])
        if report["advice"]:
            print(f"warning: {report['advice']}", file=sys.stderr)
    return 0
