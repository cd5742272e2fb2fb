"""Folders with things in them that can be no samples: told, or left out and listed."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import redox
from test_pack import by_source
from test_sources import make_tree, png


@pytest.mark.parametrize("found", ["imagefolder", "files"])
@pytest.mark.parametrize("fields", [False, True])  # the core reads the tree, or Python does
def test_names_that_are_not_utf8(tmp_path: Path, found: str, fields: bool) -> None:
    tree = make_tree(tmp_path / "tree", ["a/1.png", "c/1.png"], png())
    (tree / os.fsdecode(b"b\xfe")).mkdir()
    for name in (b"b\xfe/1.png", b"c/\xff.png"):
        (tree / os.fsdecode(name)).write_bytes(png())
    kinds: Any = {"files": {"path": "str", "data": "bytes"}, "imagefolder": ["png", "int"]}[found]
    options: dict[str, Any] = {"format": found, "fields": kinds if fields else None}
    with pytest.raises(redox.StorageError, match=r"\\x(fe|ff).*not UTF-8") as caught:
        redox.pack(tree, tmp_path / "x", **options)
    assert caught.value.errno == errno.EILSEQ
    assert str(caught.value.path).startswith(str(tree))
    info = redox.pack(tree, tmp_path / "y", on_error="skip", **options)
    assert sorted(entry["key"] for entry in info.skipped) == [r"b\xfe/1.png", r"c/\xff.png"]
    assert info.samples == 2
    if found == "imagefolder":  # with torchvision's labels
        assert info.classes == ["a", r"b\xfe", "c"]
        assert [label for _, label in by_source(tmp_path / "y")] == [0, 2]


@pytest.mark.parametrize("fields", [False, True])
def test_pipes_and_sockets_are_unreadable_sources(tmp_path: Path, fields: bool) -> None:
    tree = make_tree(tmp_path / "tree", ["a"])
    os.mkfifo(tree / "pipe")
    options: dict[str, Any] = {"fields": {"path": "str", "data": "bytes"} if fields else None}
    with pytest.raises(redox.StorageError, match=r"pipe.*not a file") as caught:
        redox.pack(tree, tmp_path / "x", **options)
    assert (caught.value.path, caught.value.errno) == (str(tree / "pipe"), errno.ENOTSUP)
    info = redox.pack(tree, tmp_path / "y", on_error="skip", **options)
    assert (info.samples, [entry["key"] for entry in info.skipped]) == (1, ["pipe"])
