"""`redox.pack`: what goes in comes out, whatever the source; what does not fit is told."""

from __future__ import annotations

import errno
import io
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import redox
from PIL import Image
from test_sources import Slow, make_tree, npy, png, write_tar

torch = pytest.importorskip("torch")


class Pair(NamedTuple):
    image: Any
    label: int


def same(a: Any, b: Any) -> bool:
    """Equality that knows arrays, tensors (which come out as arrays) and images (as bytes)."""
    if isinstance(b, torch.Tensor):
        b = b.detach().view(torch.int16).numpy() if b.dtype == torch.bfloat16 else b.detach().numpy()
        if a.dtype.name == "bfloat16" or a.dtype.kind == "V":
            a = a.view(np.int16)
    if isinstance(b, (np.ndarray, np.generic)):
        a, b = np.asarray(a), np.asarray(b)
        return a.dtype.itemsize == b.dtype.itemsize and a.shape == b.shape and np.array_equal(a, b)
    if isinstance(b, Image.Image):
        again = Image.open(io.BytesIO(a))
        return again.mode == b.mode and again.tobytes() == b.tobytes()
    if isinstance(b, dict):
        return isinstance(a, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in b)
    if isinstance(b, tuple):
        return isinstance(a, tuple) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def by_source(path: Path | str) -> list[Any]:
    """The samples of a data set in the order of their source."""
    with redox.open(path) as data:
        found = {data.source(i): data[i] for i in range(len(data))}
        assert len(found) == len(data)
        return [found[i] for i in sorted(found)]


class Numbers(torch.utils.data.IterableDataset):
    """An iterable data set that can be read again and again."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Iterator[tuple[int, str]]:
        return ((i, str(i)) for i in range(self.n))


VALUES: dict[str, Callable[[int], Any]] = {
    "bytes": lambda i: bytes([i % 256]) * (i % 7),
    "str": lambda i: "ünïcødé 🦀"[: i % 10],
    "int": lambda i: (-1) ** i * (1 << 63 - i % 60) // 2,
    "float": lambda i: i / 3,
    "bool": lambda i: i % 3 == 0,
    "json": lambda i: {"a": [i, None, {"ü": str(i)}], "b": i / 7},
    "fixed": lambda i: np.full((2, 3), i, np.float32),
    "any shape": lambda i: np.arange(i % 5 * 2, dtype=np.int16).reshape(-1, 2),
    "scalar array": np.uint8,
    "bool array": lambda i: np.arange(4) % 2 == i % 2,
    "complex": lambda i: np.full(2, i * 1j, np.complex64),
    "tensor": lambda i: torch.full((3,), i, dtype=torch.int64),
    "bfloat16": lambda i: torch.full((3,), i / 4, dtype=torch.bfloat16),
    "rgb": lambda i: Image.new("RGB", (5, 4), (i, 0, 255 - i)),
    "mask": lambda i: Image.new("L", (5, 4), i),
    "deep mask": lambda i: Image.new("I;16", (5, 4), i * 100),
}


@pytest.mark.parametrize("layout", ["dict", "tuple", "scalar"])
@pytest.mark.parametrize("kind", VALUES)
def test_what_goes_in_comes_out(tmp_path: Path, kind: str, layout: str) -> None:
    make = VALUES[kind]
    wrap: Callable[[int], Any] = {
        "dict": lambda i: {"n": i, "x": make(i)},
        "tuple": lambda i: (make(i), i),
        "scalar": make,
    }[layout]
    if layout == "scalar" and kind == "json":
        pytest.skip("a dict is a sample of its own")
    samples = [wrap(i) for i in range(50)]
    redox.pack(samples, tmp_path / "x", chunk_size="1kb")
    for found, wanted in zip(by_source(tmp_path / "x"), samples, strict=True):
        assert same(found, wanted), (found, wanted)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("codec", ["auto", "lz4", "none"])
def test_order_and_codec(tmp_path: Path, shuffle: bool, codec: str) -> None:
    samples = [{"n": i, "text": "abc " * (i % 50)} for i in range(500)]
    info = redox.pack(samples, tmp_path / "x", shuffle=shuffle, codec=codec, chunk_size="2kb", seed=3)
    with redox.open(tmp_path / "x") as data:
        stored = [data[i]["n"] for i in range(500)]
    assert (stored == list(range(500))) is not shuffle
    assert sorted(stored) == list(range(500))
    assert by_source(tmp_path / "x") == samples
    assert info.shuffled is shuffle
    assert info.chunks > 5
    assert info.codec == ("lz4" if codec == "auto" else codec)
    assert bool(info.codec_reason) is (codec == "auto")
    other = redox.pack(samples, tmp_path / "y", shuffle=shuffle, codec=codec, chunk_size="2kb", seed=3)
    assert other.fingerprint == info.fingerprint


def test_kinds_of_sources(tmp_path: Path) -> None:
    samples = [(i, str(i)) for i in range(100)]
    for number, src in enumerate([samples, Slow(samples), iter(samples), (s for s in samples), Numbers(100)]):
        redox.pack(src, tmp_path / str(number))
        assert by_source(tmp_path / str(number)) == samples, src
    rows = np.arange(12.0).reshape(4, 3)
    redox.pack(rows, tmp_path / "rows")
    assert all(same(a, b) for a, b in zip(by_source(tmp_path / "rows"), rows, strict=True))


def test_an_image_folder(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for label, name in enumerate(["ä", "b"]):
        for i in range(5):
            make_tree(tree, [f"{name}/{i}.png"], png(label * 10 + i))
    info = redox.pack(tree, tmp_path / "x")
    assert info.classes == ["b", "ä"]
    assert info.class_counts == {0: 5, 1: 5}
    assert info.fields == {"image": "png", "label": "int"}
    with redox.open(tmp_path / "x") as data:
        number = data.find("ä/3.png")
        assert data.key(number) == "ä/3.png"
        assert data.source(number) == 8
        assert data[number] == (png(3), 1)
        image, label = data.get(number)
        assert (image.getpixel((0, 0)), label) == ((3, 0, 0), 1)


def test_a_folder_of_files(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree", ["a.txt", "b/c.bin", "b/é.bin"])
    (tree / "empty").write_bytes(b"")
    redox.pack(tree, tmp_path / "x")
    assert {s["path"]: s["data"] for s in by_source(tmp_path / "x")} == {
        "a.txt": b"x",
        "empty": b"",
        "b/c.bin": b"x",
        "b/é.bin": b"x",
    }


def test_webdataset_and_json_lines(tmp_path: Path) -> None:
    members: list[tuple[str, bytes]] = []
    for i in range(40):
        members += [(f"d/{i}.png", png(i)), (f"d/{i}.cls", b"%d" % i), (f"d/{i}.json", json.dumps({"i": [i]}).encode())]
        members += [(f"d/{i}.txt", str(i).encode()), (f"d/{i}.npy", npy(np.arange(i))), (f"d/{i}.bin", b"")]
    tars = [write_tar(tmp_path / f"a-{n}.tar", members[n * 120 : n * 120 + 120]) for n in range(2)]
    info = redox.pack(str(tmp_path / "a-{0..1}.tar"), tmp_path / "x")
    assert info.fields == {
        "__key__": "str", "png": "image", "cls": "int", "json": "json", "txt": "str", "npy": "int64", "bin": "bytes"
    }  # fmt: skip
    with redox.open(tmp_path / "x") as data:
        sample = data[data.find("d/17")]
    wanted = {
        "__key__": "d/17",
        "png": png(17),
        "cls": 17,
        "json": {"i": [17]},
        "txt": "17",
        "npy": np.arange(17),
        "bin": b"",
    }
    assert same(sample, wanted)
    redox.pack(tars, tmp_path / "y", fields={"cls": "int", "png": "bytes"})
    assert by_source(tmp_path / "y")[5] == {"cls": 5, "png": png(5)}
    lines = tmp_path / "x.jsonl"
    samples = [{"text": f"zeile {i} ü", "n": i, "deep": {"x": [i, "a"]}} for i in range(100)]
    lines.write_text("\n".join(map(json.dumps, samples)))
    redox.pack(lines, tmp_path / "z")
    assert by_source(tmp_path / "z") == samples


def test_missing_values(tmp_path: Path) -> None:
    samples = [{"a": None if i % 3 else i, "b": None if i % 2 else "x", "c": None, "d": i} for i in range(30)]
    redox.pack(samples, tmp_path / "x", fields={"a": "int?", "b": "str?", "c": "float32[2]?", "d": "int"})
    assert by_source(tmp_path / "x") == samples
    redox.pack([{"a": 1}, {}], tmp_path / "y", fields={"a": "int?"})
    assert by_source(tmp_path / "y") == [{"a": 1}, {"a": None}]
    with pytest.raises(TypeError, match="sample 1: field 'a'"):
        redox.pack([{"a": 1}, {"a": None}], tmp_path / "z")


@pytest.mark.parametrize("workers", [0, 2])
def test_transforms(tmp_path: Path, workers: int) -> None:
    def halve(sample: dict[str, int]) -> dict[str, Any]:
        if sample["n"] % 2:
            raise redox.SkipSample
        return {"half": sample["n"] // 2, "by": str(sample["n"])}

    redox.pack([{"n": i} for i in range(200)], tmp_path / "x", transform=halve, workers=workers)
    assert by_source(tmp_path / "x") == [{"half": i, "by": str(2 * i)} for i in range(100)]
    with redox.open(tmp_path / "x") as data:
        assert {data.source(i) for i in range(100)} == set(range(0, 200, 2))  # where each was in its source


@pytest.mark.parametrize("workers", [0, 2])
def test_a_transform_that_makes_several(tmp_path: Path, workers: int) -> None:
    def cut(sample: dict[str, list[int]]) -> Iterator[np.ndarray]:
        for i in range(0, len(sample["tokens"]) - 3, 4):
            yield np.array(sample["tokens"][i : i + 4], np.int32)

    texts = [{"tokens": list(range(i, i + i % 13))} for i in range(1, 100)]
    redox.pack(texts, tmp_path / "x", transform=cut, workers=workers)
    wanted = [row for text in texts for row in cut(text)]
    found = by_source(tmp_path / "x")
    assert len(found) == len(wanted) > 100
    assert all(same(a, b) for a, b in zip(found, wanted, strict=True))
    with redox.open(tmp_path / "x") as data:
        assert data.info.fields == {"value": "int32[4]"}
        assert len({data.key(i) for i in range(len(data))}) == len(data)


def test_images_through_transforms(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for i in range(6):
        make_tree(tree, [f"a/{i}.png"], png(i))
    redox.pack(tree, tmp_path / "same", transform=lambda sample: (sample[0], sample[1] + 5))
    assert by_source(tmp_path / "same") == [(png(i), 5) for i in range(6)]  # not encoded again
    redox.pack(tree, tmp_path / "small", transform=lambda sample: (sample[0].resize((2, 2)), sample[1]))
    with redox.open(tmp_path / "small") as data:
        assert data.fields == {"image": "image", "label": "int"}
        assert data.classes == ["a"]
        image, _ = data.get(data.find("a/4.png"))
        assert (image.size, image.getpixel((0, 0))) == ((2, 2), (4, 0, 0))


def test_wrong_samples_are_told(tmp_path: Path) -> None:
    for second in ["x", 1.5, None, {"y": 1}]:
        bad = second if isinstance(second, dict) else {"x": second}
        with pytest.raises(TypeError, match=r"sample 30.*'x'"):
            redox.pack([{"x": 1}] * 30 + [bad], tmp_path / "x")
    with pytest.raises(TypeError, match=r"sample 30.*shape \[3\], got \[4\]"):
        redox.pack([{"x": np.zeros(3)}] * 30 + [{"x": np.zeros(4)}], tmp_path / "x")
    with pytest.raises(TypeError, match=r"sample 0.*'x'.*fits no field kind"):
        redox.pack([{"x": object()}], tmp_path / "x")
    assert not (tmp_path / "x" / "manifest.json").exists()


def test_arrays_with_places_without_a_value_are_refused(tmp_path: Path) -> None:
    masked = np.ma.masked_array(np.zeros(3), mask=[0, 1, 0])
    good = {"sparse_coo": torch.eye(3), "meta": torch.eye(3), "masked": np.zeros(3)}
    bad = {"sparse_coo": torch.eye(3).to_sparse(), "meta": torch.eye(3, device="meta"), "masked": masked}
    for word, value in bad.items():
        for samples, number in (([{"x": value}], 0), ([{"x": good[word]}] * 30 + [{"x": value}], 30)):
            with pytest.raises(TypeError, match=rf"sample {number}: field 'x'.*{word}"):
                redox.pack(samples, tmp_path / "x")
    redox.pack([{"x": np.ma.masked_array(np.arange(3.0))}], tmp_path / "x")  # nothing is masked
    assert by_source(tmp_path / "x")[0]["x"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("workers", [0, 2])
def test_failures_name_their_sample(tmp_path: Path, workers: int) -> None:
    class Broken(Slow):
        def __getitem__(self, index: int) -> Any:
            if index == 77:
                raise KeyError("no such row")
            return self.values[index]

    def fail(sample: int) -> int:
        if sample == 90:
            raise ValueError("can't do this")
        return sample

    data = Broken(list(range(200)))
    with pytest.raises(KeyError, match=r"sample 77.*no such row"):
        redox.pack(data, tmp_path / "x", workers=workers)
    with pytest.raises(ValueError, match=r"sample 90.*can't do this"):
        redox.pack(list(range(200)), tmp_path / "z", transform=fail, workers=workers)
    info = redox.pack(data, tmp_path / "y", transform=fail, workers=workers, on_error="skip")
    assert [entry["source"] for entry in info.skipped] == [77, 90]
    assert by_source(tmp_path / "y") == [i for i in range(200) if i not in (77, 90)]


@pytest.mark.parametrize("found", ["imagefolder", "files"])
def test_unreadable_files(tmp_path: Path, found: str) -> None:
    tree = make_tree(tmp_path / "tree", ["a/1.png", "a/2.png", "a/3.png"], png())
    (tree / "a" / "2.png").unlink()
    (tree / "a" / "2.png").symlink_to(tree / "gone")
    with pytest.raises(redox.StorageError, match=r"2\.png") as caught:
        redox.pack(tree, tmp_path / "x", format=found)
    assert caught.value.errno == 2
    assert str(caught.value.path).endswith("a/2.png")
    with pytest.raises(redox.StorageError, match=r"2\.png") as caught:
        redox.pack(tree, tmp_path / "x", format=found, transform=lambda sample: sample, overwrite=True)
    assert caught.value.errno == 2
    info = redox.pack(tree, tmp_path / "y", format=found, on_error="skip")
    assert info.samples == 2
    assert [entry["key"] for entry in info.skipped] == ["a/2.png"]
    with pytest.raises(redox.StorageError) as caught:
        redox.pack(tmp_path / "nothing", tmp_path / "z")
    assert caught.value.errno == 2


@pytest.mark.parametrize("src", [[], iter(()), np.zeros((0, 3)), Slow([])])
def test_sources_without_samples(tmp_path: Path, src: Any) -> None:
    with pytest.raises(ValueError, match="no samples"):
        redox.pack(src, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_nothing_left(tmp_path: Path) -> None:
    def drop(sample: Any) -> Any:
        raise redox.SkipSample

    with pytest.raises(ValueError, match="left out"):
        redox.pack([1, 2, 3], tmp_path / "x", transform=drop)
    (tmp_path / "empty.jsonl").write_text("\n\n")
    with pytest.raises(ValueError, match="no samples"):
        redox.pack(tmp_path / "empty.jsonl", tmp_path / "x")


@pytest.mark.parametrize(
    "options",
    [
        {"codec": "zip"},
        {"chunk_size": 3},
        {"chunk_size": "big"},
        {"shard_size": 0},
        {"seed": -1},
        {"seed": "a"},
        {"shuffle": 1},
        {"workers": -1},
        {"workers": 1.5},
        {"overwrite": "yes"},
        {"on_error": "ignore"},
        {"format": "zip"},
        {"transform": 3},
        {"progress": "bar"},
        {"fields": {"a": "nothing"}},
    ],
)
def test_wrong_options_are_told_at_once(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        redox.pack([1], tmp_path / "x", **options)
    assert not (tmp_path / "x").exists()


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[tuple[int, int | None]] = []
    redox.pack(list(range(1000)), tmp_path / "x", progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (1000, 1000)
    tree = make_tree(tmp_path / "tree", [f"{i}.txt" for i in range(20)])
    told.clear()
    redox.pack(tree, tmp_path / "y", progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (20, 20)


def test_a_destination_with_too_long_a_name(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree", ["a/1.txt"])
    for src in ([1], tree):
        with pytest.raises(redox.StorageError) as caught:
            redox.pack(src, tmp_path / ("x" * 300))
        assert caught.value.errno == errno.ENAMETOOLONG
        assert str(caught.value.path).startswith(str(tmp_path / ("x" * 300)))


def test_a_destination_inside_the_source_is_refused(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree", ["a/1.txt"])
    with pytest.raises(ValueError, match="inside"):
        redox.pack(tree, tree / "packed")


def test_import_is_light() -> None:
    import subprocess
    import sys

    code = "import sys, redox; redox.pack, redox.Writer; print(*[m for m in ('torch', 'PIL') if m in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert (
        subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout
        == "\n"
    )
