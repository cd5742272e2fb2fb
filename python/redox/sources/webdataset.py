"""WebDataset: tar files in which neighbouring members with one name before the first dot are one sample.

The name up to that dot is the sample's `__key__`, the rest its field names: `dog/7.jpg` and `dog/7.cls` are the sample
`dog/7` with the fields `jpg` and `cls`. See https://github.com/webdataset/webdataset for the convention.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..images import decoded
from ..schema import IMAGES as KINDS
from ..schema import Field
from .source import Bad, OnBad, Source, Task, file_identity, storage_error

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
IMAGES = frozenset(("jpg", "jpeg", "png", "ppm", "pgm", "pbm", "pnm", "webp", "bmp", "tif", "tiff", "gif"))
_NAME = re.compile(r"^((?:.*/)?[^/.]+)\.([^/]*)$")
_BRACES = re.compile(r"\{([^{}]*)\}")


class WebDataset(Source):
    """Tars, one after the other.

    Args:
        paths: the tar files, in order.
        kinds: the kinds that the user chose, by extension; else the extension's own.
    """

    def __init__(self, paths: Sequence[str | os.PathLike[str]], kinds: Mapping[str, str] | None = None) -> None:
        self._paths = [os.fspath(p) for p in paths]
        self._kinds = {name: Field.parse(name, kind).kind for name, kind in (kinds or {}).items()}
        self.name = self._paths[0] if len(self._paths) == 1 else f"{len(self._paths)} tars from {self._paths[0]}"
        self.hints = _Hints()

    def tasks(self, start: int, on_bad: OnBad) -> Iterator[Task]:
        numbers = itertools.count()
        for path in self._paths:
            for key, members in self._groups(path, numbers, on_bad):
                number = next(numbers)
                if number >= start:
                    yield Task(number, key, members)

    def _groups(self, path: str, numbers: Iterator[int], on_bad: OnBad) -> Iterator[tuple[str, dict[str, bytes]]]:
        """The samples of one tar; what follows a damage in it can't be found any more."""
        key, members = "", dict[str, bytes]()
        try:
            with tarfile.open(path, "r|*") as tar:
                for name, extension, data in _members(tar):
                    if name != key and members:
                        yield key, members
                        members = {}
                    key = name
                    if extension in members:
                        raise ValueError(f"{path}: sample {key!r} has two members .{extension}")
                    members[extension] = data
            if members:
                yield key, members
        except OSError as error:
            on_bad(Bad(next(numbers), key or None, storage_error(path, error)))
        except (tarfile.TarError, EOFError, zlib.error, ValueError) as error:
            on_bad(Bad(next(numbers), key or None, ValueError(f"{path}: after sample {key!r}: {error}")))

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


def _members(tar: tarfile.TarFile) -> Iterator[tuple[str, str, bytes]]:
    for member in tar:
        match = _NAME.match(member.name.removeprefix("./"))
        if not member.isfile() or match is None:
            continue
        file = tar.extractfile(member)
        assert file is not None  # regular files have one
        data = file.read()
        if len(data) != member.size:
            raise ValueError(f"member {member.name} is cut off after {len(data)} of {member.size} bytes")
        yield match[1], match[2].lower(), data


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
