"""Finding formats and reading sources. Pure: no library."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from redox import sources
from redox.errors import StorageError
from redox.sources import Bad, Source
from redox.sources.trees import walk
from redox.sources.webdataset import expand


def png(value: int = 0) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (4, 3), (value, 0, 0)).save(out, "PNG")
    return out.getvalue()


def write_tar(path: Path, members: list[tuple[str, bytes]]) -> Path:
    mode: Any = "w:gz" if path.suffix in (".gz", ".tgz") else "w"
    with tarfile.open(path, mode) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def read(source: Source, start: int = 0) -> tuple[list[tuple[int, str | None, Any]], list[Bad]]:
    bad: list[Bad] = []
    return [(t.number, t.key, source.load(t)) for t in source.tasks(start, bad.append)], bad


def make_tree(root: Path, names: list[str], data: bytes = b"x") -> Path:
    for name in names:
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return root


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("a.tar", ["a.tar"]),
        ("a-{0..2}.tar", ["a-0.tar", "a-1.tar", "a-2.tar"]),
        ("a-{008..010}.tar", ["a-008.tar", "a-009.tar", "a-010.tar"]),
        ("{a,b}-{0..1}", ["a-0", "a-1", "b-0", "b-1"]),
        ("{a,b{1,2}}", ["a", "b1", "a", "b2"]),
        ("{2..0}", ["2", "1", "0"]),
    ],
)
def test_braces(pattern: str, paths: list[str]) -> None:
    assert expand(pattern) == paths


def test_formats_are_found(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree", ["cat/a.JPG", "dog/deep/b.png"])
    files = make_tree(tmp_path / "files", ["a.txt", "b/c.bin"])
    flat = make_tree(tmp_path / "flat", ["a.png", "b.png"])
    tars = tmp_path / "tars"
    tars.mkdir()
    one = write_tar(tars / "a-0.tar", [("1.txt", b"x")])
    lines = tmp_path / "x.jsonl"
    lines.write_text("{}\n")
    for src, found in [
        (tree, "imagefolder"),
        (files, "files"),
        (flat, "files"),
        (one, "webdataset"),
        (str(tars / "a-{0..0}.tar"), "webdataset"),
        ([one, str(one)], "webdataset"),
        (tars, "webdataset"),
        (lines, "jsonl"),
        ([{"a": 1}], "samples"),
        ((i for i in range(3)), "samples"),
        (np.zeros((3, 2)), "samples"),
    ]:
        assert sources.detect(src) == found, src
    assert sources.detect(tree, "files") == "files"


@pytest.mark.parametrize(
    ("src", "words"),
    [
        (3, "int is not a path"),
        ({"a": 1}, "dict is not"),
        (b"bytes", "bytes is not"),
        ("s3://bucket/x.tar", "no local path"),
    ],
)
def test_what_is_no_source_is_told(src: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        sources.detect(src)


def test_hidden_files_decide_nothing(tmp_path: Path) -> None:
    tree = make_tree(
        tmp_path / "tree", ["cat/a.jpg", "dog/b.jpg", ".DS_Store", "cat/.thumbs", ".git/config", "._c.png"]
    )
    assert sources.detect(tree) == "imagefolder"
    assert sources.detect(make_tree(tmp_path / "hidden", [".x", ".y/z.jpg"])) == "files"


def test_doubtful_paths_are_told(tmp_path: Path) -> None:
    mixed = make_tree(tmp_path / "mixed", ["cat/a.jpg", "cat/readme.txt"])
    with pytest.raises(ValueError, match=r"cat/readme\.txt.*format='imagefolder'"):
        sources.detect(mixed)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no files"):
        sources.detect(tmp_path / "empty")
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match=r"x\.parquet.*format="):
        sources.detect(tmp_path / "x.parquet")
    with pytest.raises(StorageError, match="nothing-there") as caught:
        sources.detect(tmp_path / "nothing-there")
    assert caught.value.path == str(tmp_path / "nothing-there")
    assert caught.value.errno == 2
    with pytest.raises(ValueError, match="format='tar'"):
        sources.detect(mixed, "tar")
    with pytest.raises(ValueError, match="Python objects"):
        sources.detect(mixed, "samples")
    with pytest.raises(ValueError, match="list is not of format 'jsonl'"):
        sources.detect([1], "jsonl")


def test_trees_are_walked_as_torchvision_does(tmp_path: Path) -> None:
    datasets = pytest.importorskip("torchvision.datasets")
    names = [
        "a/1.png",
        "a/b.x/2.png",
        "a/b/3.png",
        "a/b/c/4.png",
        "a/b-c/5.png",
        "a-b/6.png",
        "ü/é.png",
        "a/0.PNG",
        "a/z.txt",
    ]
    tree = make_tree(tmp_path / "tree", names, png())
    source = sources.resolve(str(tree), "imagefolder")
    found = [(sample[1], key) for _, key, sample in read(source)[0]]
    wanted = datasets.ImageFolder(str(tree))
    assert found == [(label, os.path.relpath(path, tree)) for path, label in wanted.samples]
    assert source.classes == wanted.classes
    assert source.total == 8


def test_links_back_are_not_followed(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree", ["a/1.txt"])
    (tree / "a" / "loop").symlink_to(tree)
    (tree / "b").symlink_to(tree / "a" / "1.txt")
    os.mkfifo(tree / "pipe")
    assert list(walk(str(tree))) == ["b", "a/1.txt"]


def test_empty_classes_are_told(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree", ["a/1.png", "b/x.txt"])
    with pytest.raises(ValueError, match="class 'b'"):
        _ = sources.resolve(str(tree), "imagefolder").total


def test_webdataset(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    first = [
        ("./dir/1.jpg", png()),
        ("./dir/1.cls", b" 7\n"),
        ("dir/1.seg.png", png(1)),
        ("dir/2.jpg", png(2)),
        ("dir/2.cls", b"8"),
        ("dir/2.seg.png", png(3)),
        (".hidden", b"no sample"),
    ]
    second = [
        ("3.JSON", b'{"a": [1]}'),
        ("3.txt", "ü".encode()),
        ("3.npy", npy(array)),
        ("3.bin", b"\0"),
        ("3.score", b"x"),
    ]
    paths = [write_tar(tmp_path / "a.tar", first), write_tar(tmp_path / "b.tar.gz", second)]
    source = sources.resolve(paths, "webdataset")
    samples, bad = read(source)
    assert not bad
    assert [(n, k) for n, k, _ in samples] == [(0, "dir/1"), (1, "dir/2"), (2, "3")]
    assert samples[0][2] == {"__key__": "dir/1", "jpg": png(), "cls": 7, "seg.png": png(1)}
    third = samples[2][2]
    assert {k: v for k, v in third.items() if k != "npy"} == {
        "__key__": "3",
        "json": {"a": [1]},
        "txt": "ü",
        "bin": b"\0",
        "score": b"x",
    }
    assert np.array_equal(third["npy"], array)
    assert [n for n, _, _ in read(source, 2)[0]] == [2]
    prepared = source.prepare(samples[0][2])
    assert prepared["jpg"].mode == "RGB"
    assert prepared["cls"] == 7


def test_webdataset_kinds_are_the_users(tmp_path: Path) -> None:
    tar = write_tar(
        tmp_path / "a.tar", [("1.cls", b"7"), ("1.score", b"0.5"), ("1.ok", b"true"), ("1.meta", b"[1]"), ("1.t", b"x")]
    )
    kinds = {"cls": "bytes", "score": "float", "ok": "bool", "meta": "json", "t": "str?"}
    (sample,), _ = read(sources.resolve(str(tar), "webdataset", kinds))
    assert sample[2] == {"__key__": "1", "cls": b"7", "score": 0.5, "ok": True, "meta": [1], "t": "x"}


def test_damaged_tars_are_told(tmp_path: Path) -> None:
    whole = write_tar(tmp_path / "a.tar", [("1.bin", b"a" * 2000), ("2.bin", b"b" * 2000)])
    cut = tmp_path / "cut.tar"
    cut.write_bytes(whole.read_bytes()[:4000])
    samples, bad = read(sources.resolve([cut, whole], "webdataset"))
    assert [key for _, key, _ in samples] == ["1", "2"]
    assert len(bad) == 1
    assert "cut.tar" in str(bad[0].error)
    assert [n for n, _, _ in samples] == [1, 2]  # the lost one has a number of its own
    double = write_tar(tmp_path / "double.tar", [("1.bin", b"a"), ("1.bin", b"b")])
    assert "two members .bin" in str(read(sources.resolve(str(double), "webdataset"))[1][0].error)
    garbage = tmp_path / "garbage.tar"
    garbage.write_bytes(b"no tar at all" * 100)
    assert "garbage.tar" in str(read(sources.resolve(str(garbage), "webdataset"))[1][0].error)
    wrong = write_tar(tmp_path / "wrong.tar", [("1.cls", b"cat")])
    source = sources.resolve(str(wrong), "webdataset")
    with pytest.raises(ValueError, match=r"member 1\.cls"):
        source.load(next(source.tasks(0, lambda bad: None)))


@pytest.mark.parametrize("packed", [False, True])
def test_json_lines(tmp_path: Path, packed: bool) -> None:
    text = '\ufeff{"a": 1}\n\n  \n{"a": "ü"}\r\n[1]'.encode()
    path = tmp_path / ("x.jsonl.gz" if packed else "x.jsonl")
    path.write_bytes(gzip.compress(text) if packed else text)
    source = sources.resolve(str(path), "jsonl")
    assert read(source) == ([(0, None, {"a": 1}), (1, None, {"a": "ü"}), (2, None, [1])], [])
    assert [n for n, _, _ in read(source, 1)[0]] == [1, 2]


def test_bad_json_lines_are_told(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": 1}\n{oops\n')
    source = sources.resolve(str(path), "jsonl")
    tasks = list(source.tasks(0, lambda bad: None))
    with pytest.raises(ValueError, match="line 2"):
        source.load(tasks[1])
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(
        gzip.compress(json.dumps(list(range(10_000))).encode() + b"\n" + os.urandom(1000).hex().encode())[:-500]
    )
    bad = read(sources.resolve(str(cut), "jsonl"))[1]
    assert "damaged" in str(bad[0].error)


class Slow:
    """A map-style data set that is no sequence type of Python's."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> Any:
        return self.values[index]


def test_python_objects() -> None:
    torch_data = pytest.importorskip("torch.utils.data")

    class Numbers(torch_data.IterableDataset):
        def __iter__(self) -> Iterator[int]:
            return iter(range(5))

    for src in ([0, 1, 2, 3, 4], Slow([0, 1, 2, 3, 4]), Numbers(), iter(range(5)), range(5)):
        assert [s for _, _, s in read(sources.resolve(src, "samples"))[0]] == [0, 1, 2, 3, 4], src
    assert [s for _, _, s in read(sources.resolve(iter(range(100)), "samples"), 98)[0]] == [98, 99]
    with pytest.raises(TypeError, match="no length"):
        sources.resolve(type("NoLength", (), {"__getitem__": lambda self, i: i})(), "samples")


def test_looking_at_a_generator_loses_nothing() -> None:
    source = sources.resolve((i for i in range(100)), "samples")
    assert list(source.identity()) == list(source.identity())
    assert [s for _, _, s in read(source)[0]] == list(range(100))


@pytest.mark.parametrize("at", [0, 5, 50])
def test_an_iterable_that_fails_is_told(at: int) -> None:
    def numbers() -> Iterator[int]:
        yield from range(at)
        raise OSError("gone")

    source = sources.resolve(numbers(), "samples")
    list(source.identity())
    samples, bad = read(source)
    assert len(samples) == at
    assert [(b.number, str(b.error)) for b in bad] == [(at, "gone")]


def test_identity_follows_content(tmp_path: Path) -> None:
    def identity(src: Any, found: str = "samples") -> list[str]:
        return list(sources.resolve(src, found).identity())

    assert identity([{"a": 1}, {"a": 2}]) == identity([{"a": 1}, {"a": 2}])
    assert identity([{"a": 1}, {"a": 2}]) != identity([{"a": 1}, {"a": 3}])
    assert identity([{"a": 1}]) != identity([{"b": 1}])
    assert identity([1]) != identity(["1"])
    assert identity(Slow([1] * 100)) == identity(Slow([1] * 100)) != identity(Slow([1] * 101))
    tree = make_tree(tmp_path / "tree", ["a/1.png", "a/2.png"])
    before = identity(str(tree), "files")
    os.utime(tree / "a" / "1.png", (1, 1))
    assert identity(str(tree), "files") != before
