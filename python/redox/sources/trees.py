"""Folders as sources: one image folder per class, or any files.

Used where a transform or chosen fields make Python necessary; otherwise the core reads the files itself, many at a
time. Both see the same files in the same order.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import StorageError
from ..images import decoded
from .source import Bad, OnBad, Source, Task, storage_error

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
        return [(path, 0) for path in walk(self._root, special=True)]

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
            key = text(path)
            if key == path:
                yield Task(number, key, (path, label))
            else:
                shown = os.path.join(self._root, key)
                words = f"can't read {shown}: its name is not UTF-8"
                on_bad(Bad(number, key, StorageError(words, path=shown, errno=errno.EILSEQ)))

    def _read(self, task: Task) -> bytes:
        path = os.path.join(self._root, task.body[0])
        try:
            with open(path, "rb", opener=_without_waiting) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise OSError(errno.ENOTSUP, "it is a pipe, a socket or a device, not a file")
                return file.read()
        except OSError as error:
            raise storage_error(path, error) from None

    def identity(self) -> Iterator[str]:
        yield os.path.abspath(self._root)
        for path, label in self.files:
            try:
                status = os.stat(os.path.join(self._root, path))
            except OSError as error:  # reading it will say so
                yield f"{path}\0{label}\0{error.errno}"
            else:
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
        try:
            with os.scandir(self._root) as entries:
                self.classes = sorted(entry.name for entry in entries if entry.is_dir())
        except OSError as error:
            raise storage_error(self._root, error) from None
        if not self.classes:
            raise ValueError(f"src: {self._root} has no class folders in it")
        found = []
        for label, name in enumerate(self.classes):
            everything = walk(os.path.join(self._root, name), special=True)
            images = [path for path in everything if path.lower().endswith(EXTENSIONS)]
            if not images:
                known = ", ".join(EXTENSIONS)
                raise ValueError(f"src: no images in class {name!r} of {self._root} (they end in {known})")
            found += [(f"{name}/{path}", label) for path in images]
        self.classes = [text(name) for name in self.classes]
        return found

    def load(self, task: Task) -> Any:
        return self._read(task), task.body[1]

    def prepare(self, sample: Any) -> Any:
        return decoded(sample[0]), sample[1]


def text(path: str) -> str:
    """A path as it may be stored and shown: bytes that are not UTF-8 as \\xff."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _without_waiting(path: str, flags: int) -> int:
    """Opens a file; of a pipe it would wait for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def walk(root: str, *, special: bool = False) -> Iterator[str]:
    """The regular files below `root` by relative path: folder by folder, in the order of the folders' paths.

    The core lists trees in the same order, and torchvision too. A link back to a folder on the way is not followed.

    Args:
        root: the folder.
        special: pipes, sockets and devices, too; reading them says what they are.
    """
    folders: dict[str, list[str]] = {}
    _list(root, "", (), folders, special)
    for folder in sorted(folders):
        yield from sorted(folders[folder])


def _list(
    root: str, inside: str, above: tuple[tuple[int, int], ...], folders: dict[str, list[str]], special: bool
) -> None:
    path = os.path.join(root, inside)
    try:
        status = os.stat(path)
        with os.scandir(path) as entries:
            found = list(entries)
    except OSError as error:
        raise storage_error(path, error) from None
    here = (status.st_dev, status.st_ino)
    if here in above:
        return
    names = folders.setdefault(inside, [])
    for entry in found:
        name = f"{inside}/{entry.name}" if inside else entry.name
        if entry.is_dir():
            _list(root, name, (*above, here), folders, special)
        elif special or entry.is_file() or entry.is_symlink():  # a broken link is told when it is read
            names.append(name)


def detect(root: str) -> str:
    """Tells an image folder from a folder of any files by its first files; ValueError where both could be meant.

    Hidden files (`.DS_Store`, thumbnails) decide nothing where there are others.
    """
    images = others = hidden = 0
    first_other = ""
    nested = True
    for path in itertools.islice(_glance(root), _LOOK):
        if path.lower().endswith(EXTENSIONS) and "/." not in f"/{path}":
            images += 1
            nested = nested and "/" in path
        elif "/." in f"/{path}":
            hidden += 1
        else:
            others += 1
            first_other = first_other or path
    if not images + others + hidden:
        raise ValueError(f"src: {root} holds no files")
    if not images or not nested:
        return "files"
    if others:
        raise ValueError(
            f"src: {root} holds images in folders, but other files, too ({first_other}); say what is meant:"
            " format='imagefolder' packs the images alone, format='files' everything"
        )
    return "imagefolder"


def _glance(root: str) -> Iterator[str]:
    """Files below `root` in any order, without listing all of them first."""
    for folder, _, names in os.walk(root, followlinks=True, onerror=_unreadable):
        inside = os.path.relpath(folder, root)
        yield from (name if inside == "." else f"{inside}/{name}" for name in names)


def _unreadable(error: OSError) -> None:
    raise storage_error(error.filename, error) from None
