"""`redox verify`."""

from __future__ import annotations

import argparse
import os

from .. import _native
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
    job = _native.job_new("verify", {"path": os.path.abspath(args.path), "repair": args.repair})
    try:
        done = False
        while not done:
            done, state = _native.job_wait(job)
            if not done:
                report(int(state.get("done", 0)), state.get("total") or None)
    finally:
        _native.job_close(job)
        report.close()
    problems = state.get("problems") or []
    if args.json:
        print_json({"path": args.path, "ok": not problems, **state})
    else:
        _print(args.path, state, problems)
    return 1 if problems else 0


def _print(path: str, state: dict[str, object], problems: list[dict[str, object]]) -> None:
    for problem in problems[:_LISTED]:
        print(_words(problem))
    if len(problems) > _LISTED:
        print(f"… and {len(problems) - _LISTED:,} more (--json lists them)")
    if state.get("repaired"):
        print(f"repaired: {state['repaired']}")
    verdict = f"{len(problems):,} problems" if problems else "good"
    print(f"{path}: {verdict} ({state.get('chunks', 0):,} chunks, {state.get('samples', 0):,} samples read)")


def _words(problem: dict[str, object] | str) -> str:
    return str(problem.get("message", problem)) if isinstance(problem, dict) else str(problem)
