"""`redox top`."""

from __future__ import annotations

import argparse

from .output import Parsers, command, print_json

_WORDS = "this version can't look into running engines yet: ds.stats() in the training process tells what happens"


def add(parsers: Parsers) -> None:
    """Declares the subcommand."""
    command(parsers, "top", run, "show this user's running engines", "redox top --json")


def run(args: argparse.Namespace) -> int:
    """Engines of their own come with worker processes and several ranks; they answer their clients only so far."""
    if args.json:
        print_json({"engines": [], "note": _WORDS})
    else:
        print(_WORDS)
    return 0
