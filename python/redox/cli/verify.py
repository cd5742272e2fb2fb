"""`redox verify`."""

from __future__ import annotations

import argparse
from typing import Any

from .. import _native
from ..facts import local_path
from ..progress import Progress
from .output import Parsers, command, print_json

_LISTED = 20


def add(parsers: Parsers) -> None:
    """Declares the subcommand."""
    parser = command(
        parsers,
        "verify",
        run,
        "check every checksum of a data set; exit code 1 if something is bad",
        "redox verify train.redox",
    )
    parser.add_argument("path", help="the data set")
    parser.add_argument(
        "--repair", action="store_true", default=False, help="rebuild a lost or damaged index from the shards"
    )
    parser.add_argument(
        "--progress", action=argparse.BooleanOptionalAction, default=None, help="a bar (by default on a terminal)"
    )


def run(args: argparse.Namespace) -> int:
    """Reads everything and tells what is bad."""
    report = Progress(args.progress, "verifying")
    job = _native.job_new("verify", {"path": local_path(args.path), "repair": args.repair})
    try:
        done = False
        while not done:
            done, state = _native.job_wait(job)
            if not done:
                report(int(state.get("done", 0)), state.get("total") or None)
    finally:
        _native.job_close(job)
        report.close()
    repaired = set(state["repaired"])
    left = [damage for damage in state["damage"] if damage["path"] not in repaired]
    count = len(left) + int(state["more"])
    if args.json:
        print_json({"path": args.path, "ok": not count, **state})
    else:
        _print(args.path, state, left, count)
    return 1 if count else 0


def _print(path: str, state: dict[str, Any], left: list[dict[str, Any]], count: int) -> None:
    for damage in left[:_LISTED]:
        print(f"{damage['path']}: {damage['what']}")
    if count > _LISTED:
        print(f"… and {count - _LISTED:,} more" + (" (--json lists them)" if len(left) > _LISTED else ""))
    for name in state["repaired"]:
        print(f"{name}: written anew")
    verdict = f"{count:,} thing{'s are' if count > 1 else ' is'} bad" if count else "good"
    print(f"{path}: {verdict} ({state['samples']:,} samples in {state['chunks']:,} chunks)")
