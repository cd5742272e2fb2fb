"""What subcommands share: argument types, and the ways in which they print."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from typing import Any

from ..sizes import parse_size, show_size

Parsers = Any  # argparse has no public name for what add_subparsers returns


def command(
    parsers: Parsers, name: str, run: Callable[[argparse.Namespace], int], purpose: str, example: str
) -> argparse.ArgumentParser:
    """Adds a subcommand with `--json` and an example in its help."""
    parser: argparse.ArgumentParser = parsers.add_parser(
        name,
        help=purpose,
        description=purpose[0].upper() + purpose[1:] + ".",
        epilog=f"example: {example}",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", default=False, help="print JSON; NaN and infinity as null")
    parser.set_defaults(run=run, parser=parser)
    return parser


def size(text: str) -> int:
    """Argument type: bytes, or like 8mb."""
    try:
        return parse_size(int(text) if text.isdigit() else text, "size")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def size_or_auto(text: str) -> int | str:
    """Argument type: a size, or "auto"."""
    return text if text == "auto" else size(text)


def count(text: str) -> int:
    """Argument type: a number from 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0")
    return int(text)


def positive(text: str) -> int:
    """Argument type: a number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1")
    return int(text)


def exchange(text: str) -> str | float:
    """Argument type: who gets what: a word, or a fraction."""
    if text in ("local", "uniform", "off"):
        return text
    try:
        fraction = float(text)
    except ValueError:
        fraction = -1
    if not 0 <= fraction <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not local, uniform, off or a fraction from 0 to 1")
    return fraction


def print_json(value: Any) -> None:
    """Prints one JSON value."""
    try:
        text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, indent=2, allow_nan=False)
    print(text)


def _finite(value: Any) -> Any:
    """The value with null for the numbers that JSON does not have."""
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_table(rows: list[tuple[str, Any]]) -> None:
    """Prints names and values in two columns; rows without a value are left out."""
    rows = [(name, value) for name, value in rows if value is not None and value != ""]
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        print(f"{name:<{width}}  {show(value)}")


def show(value: Any) -> str:
    """A value as a person reads it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def show_bytes(value: int | None) -> str | None:
    """Bytes as a person reads them, None as nothing."""
    return None if value is None else show_size(value)
