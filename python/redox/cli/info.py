"""`redox info`."""

from __future__ import annotations

import argparse
import sys

from ..info import Info
from .output import Parsers, command, print_json, print_table, show_bytes

_CLASSES = 10


def add(parsers: Parsers) -> None:
    """Declares the subcommand."""
    parser = command(
        parsers,
        "info",
        run,
        "tell what is in a data set, how well it is mixed and what memory it wants",
        "redox info train.redox",
    )
    parser.add_argument("path", help="the data set")


def run(args: argparse.Namespace) -> int:
    """Tells what is in a data set."""
    info = Info.of(args.path)
    if args.json:
        print_json(info.to_json())
    else:
        print_info(info)
    return 0


def print_info(info: Info) -> None:
    """Prints the facts for a person; a warning goes to standard error."""
    print_table(
        [
            ("path", info.path),
            ("format", info.format_version),
            ("fingerprint", info.fingerprint),
            ("samples", info.samples),
            ("fields", ", ".join(f"{name}: {kind}" for name, kind in info.fields.items())),
            ("classes", _classes(info)),
            ("chunks", f"{info.chunks:,} in {info.shards:,} shard file{'s' if info.shards != 1 else ''}"),
            ("bytes", f"{show_bytes(info.bytes)}, stored as {show_bytes(info.stored_bytes)}"),
            ("codec", f"{info.codec} ({info.codec_reason})" if info.codec_reason else info.codec),
            ("shuffled", info.shuffled),
            ("window", f"{info.window} chunks"),
            ("memory", _memory(info)),
            ("mixing", _mixing(info)),
        ]
    )
    advice = info.mixing["advice"]
    if advice:
        print(f"warning: {advice}", file=sys.stderr)


def _memory(info: Info) -> str | None:
    needed = info.memory["needed"]
    return None if needed is None else f"{show_bytes(needed)} at batches of {info.memory['batch_size']}"


def _mixing(info: Info) -> str:
    mixing = info.mixing
    if mixing["vif"] is None:
        return "unknown: there is no label to tell it by"
    shares = f"variance {mixing['vif']:.2f} times that of a full shuffle"
    return f"{shares} at batches of {mixing['batch_size']} (rho {mixing['rho']:.3f})"


def _classes(info: Info) -> str | None:
    if not info.classes:
        return None
    shown = ", ".join(info.classes[:_CLASSES])
    more = len(info.classes) - _CLASSES
    return f"{len(info.classes):,}: {shown}" + (f", … ({more:,} more)" if more > 0 else "")
