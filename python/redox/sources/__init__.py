"""What `redox.pack` can read: one module per format, one `Source` behind each.

`resolve` finds the format of a source; the formats' names are `FORMATS`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ..paths import path_text
from . import jsonlines, samples, trees, webdataset
from .source import Bad, Source, Task, storage_error

FORMATS = ("auto", "imagefolder", "files", "webdataset", "jsonl", "samples")

__all__ = ["FORMATS", "Bad", "Source", "Task", "detect", "resolve"]


def detect(src: Any, wanted: str = "auto") -> str:
    """The format of `src`: `wanted` unless that is "auto".

    Raises:
        ValueError: the format is unknown, does not fit, or can't be told.
        StorageError: the path can't be read.
    """
    if wanted not in FORMATS:
        raise ValueError(f"format={wanted!r}: expected one of {', '.join(FORMATS)}")
    paths = None if wanted == "samples" and not isinstance(src, (str, os.PathLike)) else _paths(src)
    if paths is None:
        if wanted in ("auto", "samples") and samples.is_samples(src):
            return "samples"
        kinds = "a path, a data set, an iterable or a list of samples" if wanted == "auto" else f"of format {wanted!r}"
        raise ValueError(f"src: a {type(src).__name__} is not {kinds}")
    for path in paths:
        path_text("src", path)
        if "://" in path:
            raise ValueError(f"src: {path} is no local path; copy the data here first, or pass an iterable over it")
    if wanted == "samples":
        raise ValueError(f"format='samples' reads Python objects, not the path {paths[0]}")
    return _detect_path(paths) if wanted == "auto" else wanted


def resolve(src: Any, found: str, fields: Any = None) -> Source:
    """The source of a detected format (not "auto")."""
    if found == "samples":
        return samples.of(src)
    paths = _paths(src) or []
    if found == "webdataset":
        return webdataset.WebDataset(_tars(paths), fields if isinstance(fields, Mapping) else None)
    if len(paths) != 1:
        raise ValueError(f"src: format={found!r} reads one path, got {len(paths)}")
    path = paths[0]
    if found == "jsonl":
        return jsonlines.JSONLines(path)
    return trees.ImageFolder(path) if found == "imagefolder" else trees.Files(path)


def _paths(src: Any) -> list[str] | None:
    """The paths in `src`, braces expanded; None if it is something else."""
    if isinstance(src, (str, os.PathLike)):
        path = os.fspath(src)
        if not isinstance(path, str):
            return None
        return [path] if os.path.exists(path) else webdataset.expand(path)
    if isinstance(src, Sequence) and src and all(isinstance(p, (str, os.PathLike)) for p in src):
        every = [path for p in src for path in _paths(p) or []]
        if isinstance(src[0], os.PathLike) or os.path.exists(every[0]) or every[0].endswith(webdataset.SUFFIXES):
            return every  # else these are texts, not paths
    return None


def _detect_path(paths: list[str]) -> str:
    for path in paths:
        try:
            os.stat(path)
        except OSError as error:
            raise storage_error(path, error) from None
    if all(os.path.isfile(p) and p.lower().endswith(webdataset.SUFFIXES) for p in paths):
        return "webdataset"
    path = paths[0]
    if len(paths) == 1:
        if os.path.isdir(path):
            return "webdataset" if _only_tars(path) else trees.detect(path)
        if path.lower().endswith(jsonlines.SUFFIXES):
            return "jsonl"
    raise ValueError(
        f"src: can't tell what {path} is; pass format= one of {', '.join(FORMATS[1:])}"
        " (known by themselves: folders, .tar, .tar.gz, .jsonl, .ndjson)"
    )


def _only_tars(folder: str) -> bool:
    try:
        names = os.listdir(folder)
    except OSError as error:
        raise storage_error(folder, error) from None
    return bool(names) and all(name.endswith(webdataset.SUFFIXES) for name in names)


def _tars(paths: list[str]) -> list[str]:
    if len(paths) == 1 and os.path.isdir(paths[0]):
        return [
            os.path.join(paths[0], name) for name in sorted(os.listdir(paths[0])) if name.endswith(webdataset.SUFFIXES)
        ]
    return paths
