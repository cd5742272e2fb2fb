"""What is no data set, or a damaged one, or one of another format."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import redox
from conftest import copied


@pytest.mark.parametrize("use", [redox.open, lambda p: redox.RedoxDataset(p, batch_size=1), redox.MapDataset])
def test_no_data_set(tmp_path: Path, use: Any) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("hello")
    (tmp_path / "file").write_text("x")
    for name, words in (("nothing", "no such"), ("other", "notes.txt"), ("file", "is a file")):
        with pytest.raises(redox.NotADatasetError, match=words) as caught:
            use(tmp_path / name)
        assert isinstance(caught.value, FileNotFoundError)
        assert name in str(caught.value.path)
        assert caught.value.errno == errno.ENOENT


@pytest.mark.parametrize("lost", [["manifest.json"], ["manifest.json", "chunks.idx"]])
def test_a_lost_manifest_can_be_repaired(pack: Any, tmp_path: Path, lost: list[str]) -> None:
    path = copied(pack(), tmp_path)
    for name in lost:
        (path / name).unlink()
    for use in (redox.open, redox._native.dataset_open):
        with pytest.raises(redox.NotADatasetError, match="verify --repair") as caught:
            use(str(path))
        assert caught.value.errno == errno.ENOENT


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"format": "zarr 3"}', '{"format": "redox 99.0"}'])
def test_a_damaged_manifest(pack: Any, tmp_path: Path, content: str) -> None:
    path = copied(pack(), tmp_path)
    (path / "manifest.json").write_text(content)
    for use in (redox.open, lambda p: redox.RedoxDataset(p, batch_size=1)):
        with pytest.raises((redox.FormatError, redox.CorruptError), match=r"manifest|format"):
            use(path)


def test_a_manifest_that_was_edited(pack: Any, tmp_path: Path) -> None:
    path = copied(pack(), tmp_path)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["samples"] = 999
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises((redox.FormatError, redox.CorruptError)):
        redox.open(path)


@pytest.mark.parametrize("name", ["chunks.idx", "shards"])
def test_missing_parts(pack: Any, tmp_path: Path, name: str) -> None:
    path = copied(pack(), tmp_path)
    part = path / name
    shutil.rmtree(part) if part.is_dir() else part.unlink()
    with pytest.raises(redox.Error):
        for _ in redox.open(path).batches(16):
            pass


def test_a_manifest_that_needs_more_is_of_a_newer_format(tmp_path: Path) -> None:
    redox.pack([1, 2], tmp_path / "x")
    manifest = tmp_path / "x" / "manifest.json"
    facts = {**json.loads(manifest.read_text()), "requires": ["later"], "checksum": "00000000"}
    text = json.dumps(facts)
    crc = 0xFFFFFFFF
    for byte in text.encode():
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    manifest.write_text(text.replace('"checksum": "00000000"', f'"checksum": "{crc ^ 0xFFFFFFFF:08x}"'))
    with pytest.raises(redox.FormatError, match=r"needs \[later\]"), redox.open(tmp_path / "x") as d:
        d[0]
