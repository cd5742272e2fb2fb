"""Damaged tars: nothing of a data set is lost without a word, wherever they are cut or hurt."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import redox
from redox import sources
from test_pack import by_source
from test_sources import read, write_tar

COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    ".tar": lambda data: data,
    ".tar.gz": gzip.compress,
    ".tar.bz2": bz2.compress,
    ".tar.xz": lzma.compress,
}
BLOCK = 512
HEADERS = [i * 2 * BLOCK for i in range(8)]  # each member: a header, a block of data
END = len(HEADERS) * 2 * BLOCK  # where the mark begins


def whole(path: Path, first: int = 0) -> bytes:
    """A tar of four samples with two members each."""
    members = [(f"{i}.{e}", b"%d" % i * 100) for i in range(first, first + 4) for e in ("bin", "txt")]
    return write_tar(path, members).read_bytes()


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_damage_is_told_wherever_it_is(tmp_path: Path, suffix: str) -> None:
    data = whole(tmp_path / "whole.tar")
    hurt = {f"header {at} flipped": flipped(data, at + 124) for at in HEADERS}
    hurt |= {f"header {at} cut": data[: at + 100] for at in HEADERS}
    hurt |= {f"header {at} zeroed": data[:at] + bytes(BLOCK) + data[at + BLOCK :] for at in HEADERS[1:]}
    hurt |= {f"data {at} cut": data[: at + BLOCK + 300] for at in HEADERS}
    hurt |= {f"sample cut at {at}": data[:at] for at in HEADERS[3::2]}
    hurt["two in one"] = data + data
    path = tmp_path / f"hurt{suffix}"
    for name, content in hurt.items():
        path.write_bytes(COMPRESSIONS[suffix](content))
        samples, bad = read(sources.resolve(str(path), "webdataset"))
        assert len(bad) == 1, name
        assert path.name in str(bad[0].error), name
        assert type(bad[0].error) is ValueError, name
        assert [number for number, _, _ in samples] == list(range(bad[0].number)), name
    path.write_bytes(COMPRESSIONS[suffix](data))
    assert len(read(sources.resolve(str(path), "webdataset"))[0]) == 4


@pytest.mark.parametrize("suffix", [".tar.gz", ".tar.bz2", ".tar.xz"])
def test_damage_of_the_compression_is_told(tmp_path: Path, suffix: str) -> None:
    packed = COMPRESSIONS[suffix](whole(tmp_path / "whole.tar"))
    path = tmp_path / f"hurt{suffix}"
    for at in range(20, len(packed) - 1, 7):
        for content in (packed[:at], flipped(packed, at)):
            path.write_bytes(content)
            _, bad = read(sources.resolve(str(path), "webdataset"))
            assert len(bad) == 1, at
            assert type(bad[0].error) is ValueError


def test_a_tar_may_come_through_a_pipe(tmp_path: Path) -> None:
    data = gzip.compress(whole(tmp_path / "whole.tar"))
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=[data])
    writer.start()
    samples, bad = read(sources.resolve(str(tmp_path / "pipe"), "webdataset"))
    writer.join()
    assert (len(samples), bad) == (4, [])


def test_where_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(flipped(whole(tmp_path / "whole.tar"), HEADERS[4] + 124))
    with pytest.raises(ValueError, match=rf"x\.tar: after sample '1': at byte {HEADERS[4]}: bad checksum"):
        redox.pack(tmp_path / "x.tar", tmp_path / "x")
    with pytest.raises(redox.NotADatasetError):
        redox.open(tmp_path / "x")
    info = redox.pack(tmp_path / "x.tar", tmp_path / "x", on_error="skip")
    assert info.samples == 1
    assert [entry["key"] for entry in info.skipped] == ["1"]  # perhaps not all of its members were read


@pytest.mark.parametrize("extra", [0, 100])
def test_a_missing_mark_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture, extra: int) -> None:
    data = whole(tmp_path / "whole.tar")
    assert not caplog.records
    (tmp_path / "x.tar").write_bytes(data[: END + extra])
    assert redox.pack(tmp_path / "x.tar", tmp_path / "x").samples == 4
    assert [r.getMessage() for r in caplog.records if "end-of-archive" in r.getMessage()] == [
        f"{tmp_path / 'x.tar'} has no end-of-archive mark: if it was cut, samples after '3' are missing"
    ]
    caplog.clear()
    (tmp_path / "y.tar").write_bytes(data[: END + BLOCK])  # one block of zeros is mark enough
    assert redox.pack(tmp_path / "y.tar", tmp_path / "y").samples == 4
    assert not caplog.records


def test_a_sample_cut_between_its_members(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(whole(tmp_path / "whole.tar")[: HEADERS[7]])
    whole(tmp_path / "b.tar", first=4)
    tars = [tmp_path / "a.tar", tmp_path / "b.tar"]
    with pytest.raises(ValueError, match=r"a\.tar ends early, in its last sample '3': member \.txt is missing"):
        redox.pack(tars, tmp_path / "x")
    info = redox.pack(tars, tmp_path / "x", on_error="skip")
    assert (info.samples, [entry["key"] for entry in info.skipped]) == (7, ["3"])
    redox.pack(tars, tmp_path / "y", fields={"__key__": "str", "txt": "bytes?"})
    assert by_source(tmp_path / "y")[3] == {"__key__": "3", "txt": None}  # allowed to be missing


def test_a_first_sample_that_was_cut(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(whole(tmp_path / "whole.tar")[: HEADERS[1]])
    whole(tmp_path / "b.tar", first=4)
    tars = [tmp_path / "a.tar", tmp_path / "b.tar"]
    info = redox.pack(tars, tmp_path / "x", on_error="skip")
    assert (info.samples, [entry["key"] for entry in info.skipped]) == (4, ["0"])
    with pytest.raises(TypeError, match=r"'txt' is missing.*note that .*a\.tar ends early"):
        redox.pack(tars[:1], tmp_path / "y", fields={"bin": "bytes", "txt": "bytes"})
