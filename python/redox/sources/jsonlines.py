"""JSON lines: one JSON value a line, blank lines left out, `.gz` understood."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterator
from typing import IO, Any

from .source import Bad, OnBad, Source, Task, file_identity, storage_error

SUFFIXES = (".jsonl", ".ndjson", ".jsonlines", ".jsonl.gz", ".ndjson.gz", ".jsonlines.gz")


class JSONLines(Source):
    """A file of JSON lines. The task's body is the line; parsing it is `load`'s work."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self.name = self._path

    def tasks(self, start: int, on_bad: OnBad) -> Iterator[Task]:
        number = 0
        try:
            with self._open() as lines:
                for place, line in enumerate(lines, 1):
                    if line.isspace():
                        continue
                    if number >= start:
                        yield Task(number, None, (place, line))
                    number += 1
        except OSError as error:
            on_bad(Bad(number, None, storage_error(self._path, error)))
        except (EOFError, zlib.error) as error:
            on_bad(Bad(number, None, ValueError(f"{self._path}: the gzip stream is damaged: {error}")))

    def _open(self) -> IO[bytes]:
        if self._path.endswith(".gz"):
            return gzip.open(self._path, "rb")  # type: ignore[return-value]
        return open(self._path, "rb")

    def load(self, task: Task) -> Any:
        place, line = task.body
        try:
            return json.loads(line.removeprefix(b"\xef\xbb\xbf"))
        except ValueError as error:
            raise ValueError(f"{self._path}, line {place}: {error}") from None

    def identity(self) -> Iterator[str]:
        yield file_identity(self._path)
