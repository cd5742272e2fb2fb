"""`redox top`."""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import shutil
import sys
import time
from collections.abc import Iterator
from typing import Any

from ..engines import look, running
from ..sizes import show_size
from .output import Parsers, command, print_json

_HOME, _CLEAR_REST, _CLEAR_LINE = "\x1b[H", "\x1b[J", "\x1b[K"
_ABOUT = """Show this user's running engines: the processes that read for DataLoader workers and for several ranks on
one node. On a terminal it refreshes until q or Ctrl-C; in a pipe it prints once, after measuring for --every seconds.
Training with num_workers=0 in a single rank reads in its own process and has no engine: ask ds.stats() there."""


def add(parsers: Parsers) -> None:
    """Declares the subcommand."""
    parser = command(parsers, "top", run, "show this user's running engines", "redox top --json")
    parser.description = _ABOUT
    parser.add_argument("path", nargs="?", help="only the engines of this data set")
    parser.add_argument("--every", type=_seconds, default=1.0, metavar="S", help="seconds between two looks")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.05 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from 0.05 to 3600")
    return value


def run(args: argparse.Namespace) -> int:
    """Shows engines, once or until told to stop."""
    watch = Watch(args.path)
    watch.look()
    if args.json or not sys.stdout.isatty():
        if watch.engines:
            time.sleep(args.every)
            watch.look()
        if args.json:
            print_json({"engines": watch.engines})
        else:
            print("\n".join(_lines(watch.engines)))
        return 0
    with _keys() as pressed:
        while True:
            _draw(watch.engines)
            if pressed(args.every) in ("q", "Q", "\x04"):
                print()
                return 0
            watch.look()


class Watch:
    """Looks at engines again and again, for what they do in between.

    Args:
        path: Of the one data set that is wanted, or None.
    """

    def __init__(self, path: str | None) -> None:
        self._path = None if path is None else os.path.abspath(path)
        self._before: dict[Any, tuple[float, dict[str, Any]]] = {}
        self.engines: list[dict[str, Any]] = []

    def look(self) -> None:
        """Look at all engines, once."""
        before, self._before, self.engines = self._before, {}, []
        for name, inode in sorted(running().items()):
            found = look(name, inode)
            now = time.monotonic()
            if found is None or not self._wanted(found):
                continue
            key = found.get("instance")
            earlier = before.get(key)
            self.engines.append(_rates(found, *(earlier[1], now - earlier[0])) if earlier else _rates(found))
            if key is not None:
                self._before[key] = now, found
        self.engines.sort(key=lambda engine: (engine["path"] or "", engine["pid"] or 0))

    def _wanted(self, found: dict[str, Any]) -> bool:
        return self._path is None or _path_of(found) == self._path


def _path_of(found: dict[str, Any]) -> str | None:
    served = found.get("served")
    if served is not None:
        return str(served["path"])
    try:  # one that does not answer: its command line ends with what it serves
        with open(f"/proc/{found['pid']}/cmdline", encoding="utf-8", errors="replace") as file:
            words = file.read().split("\0")
        return words[words.index("redox.engine") + 1]
    except (OSError, ValueError, IndexError):
        return None


def _rates(found: dict[str, Any], earlier: dict[str, Any] | None = None, seconds: float = 0.0) -> dict[str, Any]:
    """What is shown of an engine: its last look, with what happened since the one before."""
    engine: dict[str, Any] = {"path": _path_of(found), **found, "silent": bool(found.get("silent"))}
    if engine["silent"]:
        return engine
    before = {(r["trainer"], r["rank"]): r for r in earlier["ranks"] or ()} if earlier else {}
    engine["ranks"] = ranks = [dict(rank) for rank in found["ranks"] or ()]
    for rank in ranks:
        last = before.get((rank["trainer"], rank["rank"]))
        for name in ("samples", "batches"):
            rank[f"{name}_per_s"] = _rate(_total(rank, name), _total(last, name), seconds)
        rank["workers"] = rank["workers"] or []
    for name in ("samples", "batches"):
        known = [rank[f"{name}_per_s"] for rank in ranks if rank[f"{name}_per_s"] is not None]
        engine[f"{name}_per_s"] = sum(known) if known else None
    last_bytes = earlier["storage"]["bytes"] if earlier else None
    engine["storage_bytes_per_s"] = _rate(found["storage"]["bytes"], last_bytes, seconds)
    engine["reads"] = found["reads"] or []
    stats = [rank["stats"] for rank in ranks if rank["stats"]]
    engine["peers"] = next((s["peers"] for s in stats if s.get("peers")), [])
    return engine


def _total(rank: dict[str, Any] | None, name: str) -> int | None:
    stats = None if rank is None else rank["stats"]
    return None if stats is None else int(stats["total"][name])


def _rate(now: int | None, before: int | None, seconds: float) -> float | None:
    return None if now is None or before is None or seconds <= 0 or now < before else (now - before) / seconds


# ---- for people --------------------------------------------------------------------------------------------------


def _lines(engines: list[dict[str, Any]]) -> list[str]:
    if not engines:
        return ["no engines are running (training without workers in a single rank needs none)"]
    lines: list[str] = []
    for engine in engines:
        lines += ([""] if lines else []) + _engine_lines(engine)
    return lines


def _engine_lines(engine: dict[str, Any]) -> list[str]:
    head = f"{engine['path'] or '(nothing yet)'}   engine {engine['pid'] or '?'}"
    if engine["silent"]:
        return [head, "  does not answer: it is stopped, of another release, or the machine is too busy"]
    memory = engine["memory"]
    lines = [
        f"{head}   up {_duration(engine['seconds'])}"
        f"   memory {show_size(memory['used'])} of {show_size(memory['limit'])}"
        f"   storage {_per_second(engine['storage_bytes_per_s'])}, {len(engine['reads'])} reads under way"
    ]
    for rank in engine["ranks"]:
        done = rank["position"] / rank["size"] if rank["size"] else 0.0
        where = f"epoch {rank['epoch']}, {done:4.0%}" if rank["passes"] else "samples by number"
        workers = len([w for w in rank["workers"] if w["pid"] != rank["trainer"]])
        lines.append(
            f"  rank {rank['rank']}   trainer {rank['trainer']}   {workers} worker{'' if workers == 1 else 's'}   "
            f"{where}   {_number(rank['samples_per_s'])} samples/s   "
            f"{_number(rank['batches_per_s'])} batches/s"
        )
        if rank["waits"]:
            lines.append(f"    waits for {rank['waits']}".replace("waits for batch", "batch"))
    lines += [f"  peer {peer}" for peer in engine["peers"]]
    return lines


def _number(value: float | None) -> str:
    if value is None:
        return "?"
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"


def _per_second(value: float | None) -> str:
    return "? MB/s" if value is None else f"{value / 1e6:,.1f} MB/s"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def _draw(engines: list[dict[str, Any]]) -> None:
    width, height = shutil.get_terminal_size()
    head = f"redox top   {time.strftime('%H:%M:%S')}   {len(engines)} engine{'' if len(engines) == 1 else 's'}   q ends"
    lines = [head, "", *_lines(engines)]
    if len(lines) > height - 1:
        lines = [*lines[: height - 2], f"… {len(lines) - height + 2} more lines"]
    text = "\n".join(line[: width - 1] + _CLEAR_LINE for line in lines)
    sys.stdout.write(f"{_HOME}{text}\n{_CLEAR_REST}")
    sys.stdout.flush()


@contextlib.contextmanager
def _keys() -> Iterator[Any]:
    """A function that waits for a key for so many seconds, and gives it or None."""
    if not sys.stdin.isatty():

        def wait(seconds: float) -> None:
            time.sleep(seconds)

        yield wait
        return
    import termios
    import tty

    file = sys.stdin.fileno()
    saved = termios.tcgetattr(file)

    def key(seconds: float) -> str | None:
        ready, _, _ = select.select([file], [], [], seconds)
        if not ready:
            return None
        return os.read(file, 1).decode(errors="replace") or "\x04"

    try:
        tty.setcbreak(file)
        sys.stdout.write("\x1b[2J")
        yield key
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, saved)
