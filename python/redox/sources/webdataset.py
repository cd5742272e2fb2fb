"""WebDataset: tar files in which neighbouring members with one name before the first dot are one sample.

The name up to that dot is the sample's `__key__`, the rest its field names: `dog/7.jpg` and `dog/7.cls` are the sample
`dog/7` with the fields `jpg` and `cls`. See https://github.com/webdataset/webdataset for the convention.
"""

from __future__ import annotations

import io
import itertools
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..images import decoded
from ..schema import IMAGES as KINDS
from ..schema import Field
from .source import Bad, OnBad, Source, Task, file_identity, storage_error
from .tars import Damage, Tar

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
IMAGES = frozenset(("jpg", "jpeg", "png", "ppm", "pgm", "pbm", "pnm", "webp", "bmp", "tif", "tiff", "gif"))
_NAME = re.compile(r"^((?:.*/)?[^/.]+)\.([^/]*)$")
_BRACES = re.compile(r"\{([^{}]*)\}")
_log = logging.getLogger("redox")


class _Group(NamedTuple):
    """A sample as its tar has it: the members by extension."""

    path: str
    key: str
    members: dict[str, bytes]
    last: bool  # of a tar that ends without a mark: perhaps a part of it is missing


class WebDataset(Source):
    """Tars, one after the other.

    Args:
        paths: the tar files, in order.
        kinds: the kinds that the user chose, by extension; else the extension's own.
    """

    def __init__(self, paths: Sequence[str | os.PathLike[str]], kinds: Mapping[str, str] | None = None) -> None:
        self._paths = [os.fspath(p) for p in paths]
        self._chosen = {name: Field.parse(name, kind) for name, kind in (kinds or {}).items()}
        self._kinds = {name: field.kind for name, field in self._chosen.items()}
        self.name = self._paths[0] if len(self._paths) == 1 else f"{len(self._paths)} tars from {self._paths[0]}"
        self.hints = _Hints()
        self._unmarked: dict[str, None] = {}  # tars without an end-of-archive mark

    def tasks(self, start: int, on_bad: OnBad) -> Iterator[Task]:
        return (task for task in self._all(on_bad) if task.number >= start)

    def _all(self, on_bad: OnBad) -> Iterator[Task]:
        numbers = itertools.count()
        usual: frozenset[str] | None = None  # what a sample has, by the first one that is surely whole
        held: list[tuple[int, _Group]] = []  # wait for that one
        for path in self._paths:
            for group in self._groups(path, numbers, on_bad):
                number = next(numbers)
                if group.last:
                    held.append((number, group))
                elif usual is None:
                    usual = frozenset(group.members)
                if usual is not None:
                    yield from self._judged(held, usual, on_bad)
                    held = []
                if not group.last:
                    yield Task(number, group.key, group.members)
        yield from self._judged(held, frozenset(), on_bad)

    def _judged(self, held: list[tuple[int, _Group]], usual: frozenset[str], on_bad: OnBad) -> Iterator[Task]:
        """The samples before an end without a mark that have all their members."""
        for number, (path, key, members, _) in held:
            lost = sorted(name for name in usual - members.keys() if self._needed(name))
            if lost:
                words = f"{path} ends early, in its last sample {key!r}: member .{lost[0]} is missing"
                on_bad(Bad(number, key, ValueError(words)))
            else:
                yield Task(number, key, members)

    def _needed(self, extension: str) -> bool:
        return not self._chosen or (extension in self._chosen and not self._chosen[extension].nullable)

    def _groups(self, path: str, numbers: Iterator[int], on_bad: OnBad) -> Iterator[_Group]:
        """The samples of one tar; what follows a damage in it can't be found any more."""
        key, members = "", dict[str, bytes]()
        try:
            with Tar(path) as tar:
                for name, extension, data in _members(tar):
                    if name != key and members:
                        yield _Group(path, key, members, last=False)
                        members = {}
                    key = name
                    if extension in members:
                        raise Damage(f"sample {key!r} has two members .{extension}")
                    members[extension] = data
            if not tar.marked:
                self._warn(path, key)
            if members:
                yield _Group(path, key, members, last=not tar.marked)
        except OSError as error:
            on_bad(Bad(next(numbers), key or None, storage_error(path, error)))
        except Damage as error:
            on_bad(Bad(next(numbers), key or None, ValueError(f"{path}: after sample {key!r}: {error}")))

    def _warn(self, path: str, key: str) -> None:
        if path not in self._unmarked:  # a source may be read twice
            self._unmarked[path] = None
            self.doubt = f"note that {next(iter(self._unmarked))} ends early: it has no end-of-archive mark"
            _log.warning("%s has no end-of-archive mark: if it was cut, samples after %r are missing", path, key)

    def load(self, task: Task) -> dict[str, Any]:
        sample: dict[str, Any] = {"__key__": task.key}
        for extension, data in task.body.items():
            try:
                sample[extension] = _value(extension, data, self._kinds.get(extension))
            except (ValueError, EOFError) as error:
                raise ValueError(f"member {task.key}.{extension}: {error}") from None
        return sample

    def prepare(self, sample: Any) -> Any:
        return {name: self._decoded(name, value) for name, value in sample.items()}

    def _decoded(self, name: str, value: Any) -> Any:
        kind = self._kinds.get(name, "image" if _is_image(name) else "")
        if kind not in KINDS or not isinstance(value, bytes):
            return value
        return decoded(value, raw=kind == "image:raw")

    def identity(self) -> Iterator[str]:
        for path in self._paths:
            yield file_identity(path)


class _Hints(dict[str, str]):
    """Every extension has a kind, so the hints are a rule."""

    def get(self, name: str, default: Any = None) -> Any:
        if name == "__key__":
            return "str"
        if _is_image(name):
            return "image"
        return {"cls": "int", "json": "json", "txt": "str"}.get(name.rpartition(".")[2], default)


def _is_image(extension: str) -> bool:
    return extension.rpartition(".")[2] in IMAGES


def _members(tar: Tar) -> Iterator[tuple[str, str, bytes]]:
    """Key, extension and content of the members that are of samples."""
    for member in tar:
        match = _NAME.match(member.name.removeprefix("./"))
        if member.isfile() and match is not None:
            yield match[1], match[2].lower(), tar.read(member)


def _value(extension: str, data: bytes, kind: str | None) -> Any:
    last = extension.rpartition(".")[2]
    if kind is None:
        kind = {"cls": "int", "json": "json", "txt": "str", "npy": "array"}.get(last, "bytes")
    if kind in ("int", "float"):
        return int(data) if kind == "int" else float(data)
    if kind == "bool":
        return {b"0": False, b"1": True, b"false": False, b"true": True}[data.strip().lower()]
    if kind == "str":
        return data.decode()
    if kind == "json":
        return json.loads(data)
    if kind == "array":
        return np.load(io.BytesIO(data), allow_pickle=False)
    return data


def expand(pattern: str) -> list[str]:
    """Expands braces: `{000..012}`, `{a,b}`, several of them, nested ones from the inside."""
    match = _BRACES.search(pattern)
    if match is None:
        return [pattern]
    before, after = pattern[: match.start()], pattern[match.end() :]
    return [path for choice in _choices(match[1]) for path in expand(before + choice + after)]


def _choices(inside: str) -> list[str]:
    span = re.fullmatch(r"(\d+)\.\.(\d+)", inside)
    if span is None:
        return inside.split(",")
    first, last = int(span[1]), int(span[2])
    width = max(len(span[1]), len(span[2])) if span[1].startswith("0") or span[2].startswith("0") else 0
    step = 1 if last >= first else -1
    return [str(i).zfill(width) for i in range(first, last + step, step)]
