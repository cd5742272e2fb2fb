"""`redox pack`."""

from __future__ import annotations

import argparse

from ..info import Info
from ..packing import pack
from ..schema import Field
from ..settings import CODECS
from ..sources import FORMATS
from .info import print_info
from .output import Parsers, command, count, print_json, size, size_or_auto

_LISTED = 20


def add(parsers: Parsers) -> None:
    """Declares the subcommand."""
    parser = command(
        parsers,
        "pack",
        run,
        "pack an image tree, files, WebDataset tars or JSON lines into a data set; safe to interrupt and run again",
        "redox pack train/ train.redox    redox pack 'train-{000..127}.tar' train.redox",
    )
    parser.add_argument("src", nargs="+", help="a folder, tars (several, or a brace pattern), a .jsonl file")
    parser.add_argument("dst", help="where the data set goes")
    parser.add_argument("--format", choices=[f for f in FORMATS if f != "samples"], default="auto", help="what SRC is")
    parser.add_argument(
        "--shuffle", action=argparse.BooleanOptionalAction, default=True, help="spread neighbours over the chunks"
    )
    parser.add_argument("--seed", type=count, default=0, help="of the shuffle")
    parser.add_argument("--codec", choices=CODECS, default="auto", help="compression of samples")
    parser.add_argument(
        "--chunk-size", type=size_or_auto, default="auto", metavar="SIZE", help="raw bytes a chunk, like 8mb"
    )
    parser.add_argument(
        "--shard-size", type=size, default=256 << 20, metavar="SIZE", help="bytes a shard file, like 256mb"
    )
    parser.add_argument(
        "--field",
        action="append",
        type=_field,
        metavar="NAME=KIND",
        help="a field's kind, like label=int; these fields only; repeat it",
    )
    parser.add_argument("--workers", type=count, default=None, metavar="N", help="how many work in parallel")
    parser.add_argument("--overwrite", action="store_true", default=False, help="replace what is at DST")
    parser.add_argument(
        "--resume", action=argparse.BooleanOptionalAction, default=True, help="go on with an interrupted run"
    )
    parser.add_argument(
        "--on-error", choices=("raise", "skip"), default="raise", help="what to do about unreadable samples"
    )
    parser.add_argument(
        "--progress", action=argparse.BooleanOptionalAction, default=None, help="a bar (by default on a terminal)"
    )


def _field(text: str) -> tuple[str, str]:
    name, found, kind = text.partition("=")
    if not found or not name or not kind:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=KIND")
    try:
        Field.parse(name, kind)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return name, kind


def run(args: argparse.Namespace) -> int:
    """Packs, then tells what there is."""
    info = pack(
        args.src if len(args.src) > 1 else args.src[0],
        args.dst,
        format=args.format,
        shuffle=args.shuffle,
        seed=args.seed,
        codec=args.codec,
        chunk_size=args.chunk_size,
        shard_size=args.shard_size,
        fields=dict(args.field) if args.field else None,
        workers=args.workers,
        overwrite=args.overwrite,
        resume=args.resume,
        progress=args.progress,
        on_error=args.on_error,
    )
    if args.json:
        print_json(info.to_json())
    else:
        print_info(info)
        _print_skipped(info)
    return 0


def _print_skipped(info: Info) -> None:
    if info.skipped:
        print(f"\nskipped {len(info.skipped):,}:")
    for entry in info.skipped[:_LISTED]:
        print(f"  {entry['key'] if entry['key'] is not None else entry['source']}: {entry['error']}")
    if len(info.skipped) > _LISTED:
        print(f"  … and {len(info.skipped) - _LISTED:,} more (--json lists them)")
