"""Folders as sources: one image folder per class, or any files.

Used where a transform or chosen fields make Python necessary; otherwise the core reads the files itself, many at a
time. Both see the same files in the same order.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from ..images import decoded
from .source import OnBad, Source, Task, storage_error

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
_LOOK = 2000  # files that decide what a folder is


class Tree(Source):
    """The files below a folder, sorted by relative path. A task's body is what to read and the label."""

    costly = True

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = os.fspath(root)
        self.name = self._root
        self._files: list[tuple[str, int]] | None = None

    def _scan(self) -> list[tuple[str, int]]:
        return [(path, 0) for path in walk(self._root)]

    @property
    def files(self) -> list[tuple[str, int]]:
        """(relative path, label) in order."""
        if self._files is None:
            self._files = self._scan()
        return self._files

    @property
    def total(self) -> int:
        return len(self.files)

    def tasks(self, start: int, on_bad: OnBad) -> Iterator[Task]:
        for number in range(start, len(self.files)):
            path, label = self.files[number]
            yield Task(number, path, (path, label))

    def _read(self, task: Task) -> bytes:
        path = os.path.join(self._root, task.body[0])
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError as error:
            raise storage_error(path, error) from None

    def identity(self) -> Iterator[str]:
        yield os.path.abspath(self._root)
        for path, label in self.files:
            status = os.stat(os.path.join(self._root, path))
            yield f"{path}\0{label}\0{status.st_size}\0{status.st_mtime_ns}"


class Files(Tree):
    """Any files: fields `path` and `data`."""

    hints: Mapping[str, str] = {"path": "str", "data": "bytes"}

    def load(self, task: Task) -> Any:
        return {"path": task.body[0], "data": self._read(task)}


class ImageFolder(Tree):
    """One folder per class, as torchvision's `ImageFolder` reads it: fields `image` and `label`, in this order."""

    hints: Mapping[str, str] = {"image": "image", "label": "int"}

    def _scan(self) -> list[tuple[str, int]]:
        names = sorted(entry.name for entry in _entries(self._root) if entry.is_dir())
        self.classes = names
        return [
            (f"{name}/{path}", label)
            for label, name in enumerate(names)
            for path in walk(os.path.join(self._root, name))
            if path.lower().endswith(EXTENSIONS)
        ]

    def load(self, task: Task) -> Any:
        return self._read(task), task.body[1]

    def prepare(self, sample: Any) -> Any:
        return decoded(sample[0]), sample[1]


def walk(root: str) -> Iterator[str]:
    """The files below `root` by relative path, sorted within every folder as the core sorts them."""
    found = []
    for folder, _, names in os.walk(root, followlinks=True, onerror=_unreadable):
        inside = os.path.relpath(folder, root)
        found += [name if inside == "." else f"{inside}/{name}" for name in names]
    yield from sorted(found)


def detect(root: str) -> str:
    """Tells an image folder from a folder of any files by its first files; ValueError where both could be meant."""
    images = others = 0
    first_other = ""
    nested = True
    for folder, _, names in os.walk(root, followlinks=True, onerror=_unreadable):
        for name in names:
            if name.lower().endswith(EXTENSIONS):
                images += 1
                nested = nested and folder != root
            else:
                others += 1
                first_other = first_other or os.path.relpath(os.path.join(folder, name), root)
        if images + others >= _LOOK:
            break
    if not images + others:
        raise ValueError(f"src: {root} holds no files")
    if not images or not nested:
        return "files"
    if others:
        raise ValueError(
            f"src: {root} holds images in folders, but other files, too ({first_other}); say what is meant:"
            " format='imagefolder' packs the images alone, format='files' everything"
        )
    return "imagefolder"


def _entries(root: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(root) as entries:
            return list(entries)
    except OSError as error:
        raise storage_error(root, error) from None


def _unreadable(error: OSError) -> None:
    raise storage_error(error.filename, error) from None
