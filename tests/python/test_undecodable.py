"""Text that is none: refused when it is written, and an error that says where it is in data sets that have it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import redox
from conftest import write
from redox import _native

N = 40
BAD = 17


def crc32c(data: bytes) -> int:
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def damaged(folder: Path, kind: str, bad: bytes) -> str:
    """A data set of an older release, which wrote anything: bytes, of which the manifest says another kind."""
    samples = [{"x": bad if i == BAD else b"%d" % i, "label": i} for i in range(N)]
    path = Path(write(folder / "d.redox", samples, fields={"x": "bytes", "label": "int"}, shuffle=False))
    manifest = path / "manifest.json"
    told = json.loads(manifest.read_text())
    text = manifest.read_text().replace('"kind": "bytes"', f'"kind": "{kind}"', 1)
    checked = text.replace(told["checksum"], "00000000")
    manifest.write_text(text.replace(told["checksum"], f"{crc32c(checked.encode()):08x}"))
    return str(path)


@pytest.mark.parametrize(("kind", "bad"), [("str", b"\xff"), ("json", b"{"), ("json", b""), ("json", b'"\xff"')])
def test_reading(tmp_path: Path, kind: str, bad: bytes) -> None:
    path = damaged(tmp_path, kind, bad)
    with redox.open(path) as d:
        assert d[BAD - 1]["x"] == (str(BAD - 1) if kind == "str" else BAD - 1)
        with pytest.raises(redox.CorruptError, match=f"field 'x' of sample {BAD} ") as caught:
            d[[1, BAD]]
        assert caught.value.sample == BAD
        with pytest.raises(redox.CorruptError, match=f"field 'x' of sample {BAD} "):
            list(d.batches(8))


@pytest.mark.parametrize("workers", [0, 1])
def test_training(tmp_path: Path, workers: int) -> None:
    torch = pytest.importorskip("torch")
    path = damaged(tmp_path, "str", b"\xff")
    ds = redox.RedoxDataset(path, batch_size=8, shuffle=False)
    with pytest.raises(redox.CorruptError, match="field 'x' of sample"):
        list(torch.utils.data.DataLoader(ds, batch_size=8, num_workers=workers))


def test_keys() -> None:
    """Nothing writes such a key any more: the core refuses names of files that are not UTF-8."""
    with pytest.raises(redox.CorruptError, match="key of sample 3") as caught:
        _native._key(b"\xff.png", 3)
    assert caught.value.sample == 3


def written(folder: Path, kind: str, value: Any, key: str | None = None) -> Any:
    with redox.Writer(folder, fields={"x": kind}) as w:
        w.write({"x": value}, key=key)
    return redox.open(folder)[0]["x"]


def test_writing(tmp_path: Path) -> None:
    values = [float("inf"), {"a": -float("inf"), "Infinity": ['"NaN', "\\"]}, "ä\x00", []]
    assert written(tmp_path / "json", "json", values) == values  # what Python's json writes it also reads
    nan = written(tmp_path / "nan", "json", {"x": float("nan")})["x"]
    assert nan != nan
    for kind in ("str", "json"):
        with pytest.raises(TypeError, match="field 'x'"):
            written(tmp_path / "surrogate", kind, "\udc80")
    with pytest.raises(ValueError, match="surrogate"):
        written(tmp_path / "surrogate", "str", "", key="\udc80")


@pytest.mark.parametrize(("kind", "value"), [("str", b"\xff"), ("json", b"nul"), ("json", b"")])
def test_writing_past_the_encoder(tmp_path: Path, kind: str, value: bytes) -> None:
    fields = [{"name": "x", "kind": kind}]
    writer = _native.writer_new(str(tmp_path / "d"), {"fields": fields, "layout": "dict"})
    with pytest.raises(ValueError, match='field "x"'):
        _native.Record(1).write(writer, [value], [None], None, None)
    _native.writer_abort(writer)
