"""`redox.open`: facts, single samples, batches of NumPy arrays."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redox
from conftest import SHAPE, copied, number_of, pixels, write


def test_facts(pack: Any) -> None:
    with redox.open(pack(300, "dict")) as d:
        assert len(d) == 300
        assert d.fields == {"image": "uint8[3,8,8]", "label": "int", "text": "str"}
        assert d.layout == "dict"
        assert d.classes == []
        assert d.info.samples == 300
        assert d.info.fingerprint == d.fingerprint == redox.RedoxDataset(d.path, batch_size=1).fingerprint
        assert d.path in repr(d)
    assert redox.RedoxDataset(pack(300, "dict"), batch_size=1).fields == d.fields


def test_classes(image_folder: str) -> None:
    with redox.open(image_folder) as d:
        assert d.classes == ["class0", "class1", "class2", "class3"]
        assert d.class_to_idx == {"class0": 0, "class1": 1, "class2": 2, "class3": 3}
        assert redox.RedoxDataset(image_folder, batch_size=1).class_to_idx == d.class_to_idx
        data, label = d[3]
        assert isinstance(data, bytes)
        picture, same = d.get(3)
        number = d.source(3)
        assert same == label
        assert picture.mode == "RGB"
        i = int(Path(d.key(3)).stem)
        assert picture.getpixel((1, 1)) == (i, 2 * i, 3 * i)
        assert d.find(d.key(3)) == 3
        assert 0 <= number < 40


def test_samples_by_number(pack: Any) -> None:
    with redox.open(pack()) as d:
        found = d[:]
        assert sorted(label for _, label in found) == list(range(1000))
        for image, label in found:
            assert number_of(image) == label
            assert isinstance(image, np.ndarray)
            assert image.shape == SHAPE
            assert type(label) is int
        assert [d[i][1] for i in (0, 17, 999)] == [found[i][1] for i in (0, 17, 999)]
        assert [label for _, label in d[[3, 1, 2, 3]]] == [found[i][1] for i in (3, 1, 2, 3)]
        assert d[-1][1] == found[999][1]
        assert d[np.int64(5)][1] == found[5][1]
        assert [label for _, label in d[990:2000:3]] == [found[i][1] for i in (990, 993, 996, 999)]
        assert d[[]] == []
        assert d.source(17) == found[17][1]
        assert d.find(d.key(17)) == 17
        for wrong in (1000, -1001, [0, 1000]):
            with pytest.raises(IndexError):
                d[wrong]
        with pytest.raises(KeyError, match="no such key"):
            d.find("no such key")
        with pytest.raises(IndexError):
            d.source(1000)


def test_all_kinds_come_back(tmp_path: Path) -> None:
    def sample(i: int) -> dict[str, Any]:
        return {
            "b": b"" if i == 3 else b"x" * i,
            "s": "ünï" * i,
            "i": -i,
            "f": i / 3,
            "t": i % 2 == 0,
            "j": {"a": [i, None]},
            "fixed": np.arange(6, dtype="float32").reshape(2, 3) + i,
            "zero": np.float64(i),
            "any": np.arange(i * 2, dtype="int16").reshape(i, 2),
            "maybe": None if i % 2 else "yes",
            "perhaps": None if i % 3 else i,
            "rather": None if i % 4 else np.full((2,), i, "uint16"),
        }

    fields = {
        "b": "bytes",
        "s": "str",
        "i": "int",
        "f": "float",
        "t": "bool",
        "j": "json",
        "fixed": "float32[2,3]",
        "zero": "float64[]",
        "any": "int16",
        "maybe": "str?",
        "perhaps": "int?",
        "rather": "uint16[2]?",
    }
    path = write(tmp_path / "all", map(sample, range(50)), fields=fields, chunk_size="1kb")
    with redox.open(path) as d:
        for got in d[:]:
            wanted = sample(-got["i"])
            assert list(got) == list(wanted)
            for name, value in wanted.items():
                if isinstance(value, (np.ndarray, np.generic)):
                    np.testing.assert_array_equal(got[name], value)
                    assert got[name].dtype == value.dtype
                    assert got[name].shape == value.shape
                else:
                    assert got[name] == value
                    assert type(got[name]) is type(value)
        seen = 0
        for batch in d.batches(8):
            seen += len(batch.index)
            wanted = [sample(-i) for i in batch["i"]]
            assert batch["fixed"].shape == (len(wanted), 2, 3)
            assert batch["t"].dtype == bool
            assert batch["f"].tolist() == [w["f"] for w in wanted]
            assert batch["b"] == [w["b"] for w in wanted]
            assert batch["maybe"] == [w["maybe"] for w in wanted]
            for got, w in zip(batch["any"], wanted, strict=True):
                np.testing.assert_array_equal(got, w["any"])
        assert seen == 50


def test_batches(pack: Any) -> None:
    with redox.open(pack(300, "dict")) as d:
        found = []
        for step, batch in enumerate(d.batches(32, epoch=2, seed=9)):
            assert batch.step == step
            assert batch.epoch == 2
            assert batch["image"].shape == (len(batch.index), *SHAPE)
            assert batch["text"] == [f"sample {i}" for i in batch["label"]]
            assert [d[int(i)]["label"] for i in batch.index[:3]] == batch["label"].tolist()[:3]
            found += batch["label"].tolist()
        assert sorted(found) == list(range(300))
        ds = redox.RedoxDataset(d.path, batch_size=32, shuffle_seed=9)
        ds.set_epoch(2)
        assert [sample["label"] for sample in ds] == found
        assert sum(len(b.index) for b in d.batches(32, drop_last=True)) == 288
        assert [list(b) for b in d.batches(300, fields=["label"])] == [["label"]]
        for option, value in (("batch_size", 0), ("epoch", -1), ("seed", -1), ("io", "x")):
            with pytest.raises(ValueError, match=option):
                d.batches(**{"batch_size": 8, option: value})


def test_batches_are_the_callers_to_keep(pack: Any) -> None:
    with redox.open(pack()) as d:
        kept = list(d.batches(16))
    for batch in kept:
        for image, label in zip(batch["0"], batch["1"], strict=True):
            assert number_of(image) == label


def test_closed(pack: Any) -> None:
    d = redox.open(pack())
    batches, unused = d.batches(4), d.batches(4)
    next(batches)
    d.close()
    d.close()
    uses = (lambda: d[0], lambda: d.info, lambda: d.key(0), lambda: d.batches(4), lambda: d.find("1"), d.__enter__)
    for use in (*uses, lambda: next(batches), lambda: next(unused)):
        with pytest.raises(redox.ClosedError):
            use()
    assert len(d) == 1000
    assert "closed" in repr(d)


def test_pickled_as_its_path(pack: Any) -> None:
    with redox.open(pack()) as d:
        copy = pickle.loads(pickle.dumps(d))
        d.close()
        assert number_of(copy[5][0]) == copy[5][1]


def test_threads(pack: Any) -> None:
    with redox.open(pack()) as d:
        wrong: list[Any] = []

        def look(seed: int) -> None:
            rng = np.random.default_rng(seed)
            for i in rng.integers(0, 1000, 50):
                image, label = d[int(i)]
                if number_of(image) != label:
                    wrong.append(i)

        threads = [threading.Thread(target=look, args=(t,)) for t in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


# -- processes and signals ---------------------------------------------------------------------------------------------


def test_a_forked_child_is_told(pack: Any) -> None:
    with redox.open(pack()) as d:
        d[0]
        ds = redox.RedoxDataset(d.path, batch_size=4)
        kept = [next(iter(ds))]
        read, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            answers = []
            for use in (lambda: d[0], lambda: redox.open(d.path), lambda: next(d.batches(4)), lambda: next(iter(ds))):
                try:
                    use()
                    answers.append("no error")
                except BaseException as error:
                    answers.append(type(error).__name__)
            kept.clear()
            os.write(write_end, " ".join(answers).encode())
            os._exit(0)
        os.close(write_end)
        with os.fdopen(read) as stream:
            assert stream.read() == "ForkError ForkError ForkError no error"  # that draws from an engine
        os.waitpid(child, 0)
        assert number_of(kept[0][0]) == kept[0][1]
        assert number_of(d[0][0]) == d[0][1]


def test_ctrl_c_ends_a_wait_within_a_second(pack: Any, tmp_path: Path) -> None:
    path = copied(pack(), tmp_path)
    code = f"""
import redox, signal, sys, threading, time
ds = redox.RedoxDataset({str(path)!r}, batch_size=1, with_index=True)
print("ready", flush=True)
try:
    while True:
        for _ in ds:
            pass
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    time.sleep(0.5)
    begun = time.monotonic()
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline() == "interrupted\n"
    assert time.monotonic() - begun < 1
    out, err = child.communicate(timeout=20)
    assert out == err == ""
    assert child.returncode == 0


@pytest.fixture
def stuck(pack: Any, tmp_path: Path) -> Path:
    """A data set whose shards never answer: opening a pipe for reading waits for a writer who never comes."""
    path = copied(pack(), tmp_path)
    for shard in (path / "shards").iterdir():
        shard.unlink()
        os.mkfifo(shard)
    return path


def test_storage_that_stands_still_is_a_stall(stuck: Path) -> None:
    ds = redox.RedoxDataset(stuck, batch_size=4, timeout=1.0)
    iterator = iter(ds)
    begun = time.monotonic()
    with pytest.raises(redox.StallError, match=r"chunk \d+"):
        next(iterator)
    assert 0.9 < time.monotonic() - begun < 5


def test_ctrl_c_ends_a_blocked_wait(stuck: Path) -> None:
    code = f"""
import redox
try:
    print("ready", flush=True)
    next(iter(redox.RedoxDataset({str(stuck)!r}, batch_size=4)))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    time.sleep(3)  # importing torch, opening
    begun = time.monotonic()
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline() == "interrupted\n"
    assert time.monotonic() - begun < 1
    out, err = child.communicate(timeout=20)
    assert out == err == ""


@pytest.mark.parametrize(
    "wrong", ["a", b"a", "", 1.5, None, ["a"], [1.5], [[1, 2]], np.array([1.5]), np.ones(10, np.bool_), {"a": 1}]
)
def test_what_is_no_number_is_told(pack: Any, wrong: Any) -> None:
    with redox.open(pack(10)) as d, pytest.raises(TypeError, match="is no stored number"):
        d[wrong]


def test_numbers_of_arrays_and_tensors(pack: Any) -> None:
    torch = pytest.importorskip("torch")
    with redox.open(pack(10, "dict")) as d:
        for many in (np.array([3, 1]), torch.tensor([3, 1])):
            assert [sample["label"] for sample in d[many]] == [d[3]["label"], d[1]["label"]]
        for one in (np.int32(3), np.array(3), torch.tensor(3)):
            assert d[one]["label"] == d[3]["label"]


@pytest.mark.parametrize("kind", ["float32?", "bfloat16?", "uint8?"])
def test_arrays_of_any_shape_may_be_missing(tmp_path: Path, kind: str) -> None:
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, kind[:-1])
    values = [torch.ones(2, 3, dtype=dtype), None, torch.ones(4, dtype=dtype), None]
    redox.pack(
        [{"x": value} for value in values], tmp_path / "x", fields={"x": kind}, shuffle=False, chunk_size="1kb"
    )  # fmt: skip
    with redox.open(tmp_path / "x") as d:
        assert [None if d[i]["x"] is None else d[i]["x"].shape for i in range(4)] == [(2, 3), None, (4,), None]
        (batch,) = d.batches(4, epoch=0, shuffle=False)
        assert [x is None for x in batch["x"]] == [False, True, False, True]
    got = [sample["x"] for sample in redox.RedoxDataset(tmp_path / "x", batch_size=2, shuffle=False)]
    for value, back in zip(values, got, strict=True):
        assert (value is None and back is None) or torch.equal(value, back)


def test_pixels_are_told_apart() -> None:
    assert number_of(pixels(258)) == 258
    wrong = pixels(258).copy()
    wrong[2, 7, 7] ^= 1
    with pytest.raises(AssertionError):
        number_of(wrong)
