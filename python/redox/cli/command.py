"""`redox …`: what all subcommands share: parsing, exit codes, errors without tracebacks.

Exit codes: 0 well; 1 found bad, not a data set, failed; 2 usage, also where only the library finds a value wrong;
130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

from . import bench, cat, demo, info, pack, plan, simulate, top, verify

COMMANDS = (pack, info, verify, cat, plan, simulate, bench, top, demo)

FAILED, INTERRUPTED = 1, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    args = _parser().parse_args(argv)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("redox: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has gone, as in `redox cat … | head`. Python would complain again when it closes standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, ValueError, TypeError, LookupError, RuntimeError, ImportError) as error:
        if os.environ.get("REDOX_LOG", "").lower() == "debug":
            raise
        if _is_usage(error, args):
            args.parser.error(str(error))
        text = error.args[0] if isinstance(error, KeyError) and error.args else error
        print(f"redox {args.command}: {text}", file=sys.stderr)
        return FAILED


def _is_usage(error: Exception, args: argparse.Namespace) -> bool:
    """Whether a value on the command line is impossible: the library's words then are `option=…: expected …`."""
    named = re.match(r"(\w+)=.*\bexpected\b", str(error))
    return type(error) is ValueError and named is not None and named[1] in vars(args)


class _Parser(argparse.ArgumentParser):
    """A subcommand's: takes options between its other arguments, too, as in `redox cat PATH --json 5`."""

    _inside = False  # the call that parses options and the rest apart

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self._inside:
            return super().parse_known_args(args, namespace)
        self._inside = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._inside = False


def _parser() -> argparse.ArgumentParser:
    from .. import __version__

    parser = argparse.ArgumentParser(
        prog="redox",
        description="Data sets for training, read in chunks and delivered well mixed.",
        epilog="example: redox pack train/ train.redox && redox info train.redox",
    )
    parser.add_argument("--version", action="version", version=f"redox {__version__}")
    parsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    for command in COMMANDS:
        command.add(parsers)
    return parser
