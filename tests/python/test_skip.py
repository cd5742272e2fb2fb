"""Samples that are corrupt, don't decode or are refused: an error, or with on_error="skip" another in their place."""

from __future__ import annotations

import logging
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import redox
from conftest import number_of, pixels, write
from redox.facts import Facts
from torch.utils.data import DataLoader


def data(path: Any, **options: Any) -> redox.RedoxDataset:
    return redox.RedoxDataset(path, **{"batch_size": 8, "on_error": "skip", "with_index": True, **options})


def refuse(numbers: set[int]) -> Any:
    def transform(image: Any) -> Any:
        if number_of(image) in numbers:
            raise redox.SkipSample(f"not {number_of(image)}")
        return image

    return transform


def stand_ins(labels: list[int], bad: set[int], batch_size: int = 8) -> list[int]:
    """What must be delivered: in a bad one's place the batch's previous good one, else its next."""
    wanted = []
    for i in range(0, len(labels), batch_size):
        batch = labels[i : i + batch_size]
        for place, label in enumerate(batch):
            good = [x for x in reversed(batch[: place + 1]) if x not in bad] + [
                x for x in batch[place:] if x not in bad
            ]
            wanted.append(good[0])
            assert label is not None
    return wanted


def test_transforms_that_skip(pack: Any, caplog: pytest.LogCaptureFixture) -> None:
    path = pack(300)
    labels = [label for _, label, _ in data(path, on_error="raise")]
    bad = {labels[0], labels[1], labels[10], labels[23], labels[24], labels[299]}
    ds = data(path, transform=refuse(bad))
    with caplog.at_level(logging.WARNING, logger="redox"):
        got = [label for _, label, _ in ds]
    assert got == stand_ins(labels, bad)
    assert ds.stats()["epoch"]["skipped"] == len(bad)
    assert len(caplog.records) == len(bad)
    assert all("key" in record.message and "not " in record.message for record in caplog.records)
    assert len(set(re.findall(r"of shard 0, chunk (\d+) of ", caplog.text))) > 1
    assert [len(b[1]) for b in DataLoader(ds, batch_size=8)] == [8] * 37 + [4]
    assert ds.stats()["total"]["skipped"] == 2 * len(bad)
    assert sum(len(b[1]) for b in redox.DataLoader(data(path, transform=refuse(bad)))) == 300
    mapped = redox.MapDataset(path, on_error="skip", transform=refuse(bad))
    assert sum(len(b[1]) for b in DataLoader(mapped, batch_size=100)) == 300


@pytest.mark.parametrize("batched", [False, True])
def test_workers_count_together(pack: Any, batched: bool) -> None:
    """8 samples in 38 batches of 3 workers: no worker alone sees more than the limit."""
    path, some = pack(300), set(range(0, 300, 40))
    refusal = refuse(some)

    def counts(ds: redox.RedoxDataset) -> list[int]:
        return [ds.stats()[name]["skipped"] for name in ("epoch", "total")]

    ds = data(path, transform=refusal, max_skipped=8)
    for epoch in (1, 2):
        assert sum(len(b[1]) for b in DataLoader(ds, batch_size=8, num_workers=3)) == 300
        assert counts(ds) == [8, 8 * epoch]
    del ds
    ds = data(path, transform=refusal, max_skipped=7)
    loader = redox.DataLoader(ds, num_workers=3) if batched else DataLoader(ds, batch_size=8, num_workers=3)
    with pytest.raises(redox.CorruptError, match="max_skipped=7"):
        list(loader)
    assert counts(ds)[0] >= 8


def test_without_skip_it_raises(pack: Any) -> None:
    with pytest.raises(redox.SkipSample):
        list(data(pack(300), on_error="raise", transform=refuse({7})))


def test_other_errors_are_not_swallowed(pack: Any) -> None:
    def broken(image: Any) -> Any:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        list(data(pack(300), transform=broken))


def test_the_chunk_of_a_sample(tmp_path: Path) -> None:
    path = write(tmp_path / "d.redox", map(pixels, range(300)), shard_size="16kb")
    facts = Facts.read(path)
    found = [facts.chunk_of(number) for number in range(300)]
    assert found[0] == (0, 0)
    assert found[-1] == (redox.open(path).info.shards - 1, facts.chunks - 1)
    assert sorted({chunk for _, chunk in found}) == list(range(facts.chunks))
    assert found == sorted(found)


def test_limits(pack: Any) -> None:
    path = pack(300)
    some = set(range(0, 300, 40))
    assert len(list(data(path, transform=refuse(some), max_skipped=8))) == 300
    with pytest.raises(redox.CorruptError, match="max_skipped=7") as caught:
        list(data(path, transform=refuse(some), max_skipped=7))
    assert caught.value.sample is not None
    assert (caught.value.shard, caught.value.chunk) == Facts.read(path).chunk_of(caught.value.sample)
    with pytest.raises(redox.CorruptError, match="no sample of batch 0"):
        list(data(path, transform=refuse(set(range(300)))))


def test_images_that_do_not_decode(tmp_path: Path) -> None:
    pil = pytest.importorskip("PIL.Image")
    import io

    def sample(i: int) -> dict[str, Any]:
        stream = io.BytesIO()
        pil.new("RGB", (4, 4), (i, i, i)).save(stream, "PNG")
        return {"image": b"no picture" if i in (3, 11) else stream.getvalue(), "label": i}

    path = write(tmp_path / "p", map(sample, range(20)), fields={"image": "png", "label": "int"}, chunk_size="1kb")
    with pytest.raises(redox.CorruptError, match="does not decode") as caught:
        list(data(path, on_error="raise"))
    with redox.open(path) as d:
        assert d[caught.value.sample]["label"] in (3, 11)
        with pytest.raises(redox.CorruptError):
            d.get(caught.value.sample)
    for options in ({}, {"batched": True}):
        labels = []
        for item in data(path, **options):
            pairs = (
                zip(item["image"], item["label"].tolist(), strict=True) if options else [(item["image"], item["label"])]
            )
            for picture, label in pairs:
                assert picture.getpixel((0, 0)) == (label, label, label)
                labels.append(label)
        assert len(labels) == 20
        assert not {3, 11} & set(labels)


@pytest.fixture
def damaged(pack: Any, tmp_path: Path) -> Path:
    """A copy of 300 samples in which the pixels of source sample 17 are damaged on disk."""
    path = Path(shutil.copytree(pack(300), tmp_path / "damaged"))
    (shard,) = (path / "shards").iterdir()
    content = bytearray(shard.read_bytes())
    at = content.find(pixels(17).tobytes())
    assert at > 0
    content[at + 50] ^= 1
    shard.write_bytes(content)
    return path


def test_a_corrupt_sample(damaged: Path, pack: Any, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(redox.CorruptError) as caught:
        list(data(damaged, on_error="raise"))
    assert caught.value.chunk is not None
    assert caught.value.shard == 0
    with redox.open(pack(300)) as d:
        assert caught.value.sample == next(i for i in range(300) if d.source(i) == 17)
    labels = [label for _, label, _ in data(pack(300))]
    ds = data(damaged)
    with caplog.at_level(logging.WARNING, logger="redox"):
        got = list(ds)
    assert [label for _, label, _ in got] == stand_ins(labels, {17})
    for image, label, index in got:
        assert number_of(image) == label
        with redox.open(damaged) as d:
            assert d.source(index) == label
    assert ds.stats()["epoch"]["skipped"] == 1
    text = caplog.text
    with redox.open(damaged) as d:
        number = caught.value.sample
        assert all(
            word in text for word in (f"chunk {caught.value.chunk}", "shard 0", f"sample {number}", d.key(number))
        ), text
    with pytest.raises(redox.CorruptError):
        list(data(damaged, max_skipped=0))


def test_a_corrupt_sample_by_number(damaged: Path) -> None:
    with redox.open(damaged) as d:
        numbers = [i for i in range(300) if d.source(i) == 17]
        with pytest.raises(redox.CorruptError) as caught:
            d[numbers[0]]
        assert caught.value.sample == numbers[0]
        assert number_of(d[numbers[0] - 1][0]) == d[numbers[0] - 1][1]
    exact = redox.MapDataset(damaged)
    with pytest.raises(redox.CorruptError):
        list(DataLoader(exact, batch_size=16))
    skipping = redox.MapDataset(damaged, on_error="skip")
    labels = [n for _, part in DataLoader(skipping, batch_size=16) for n in part.tolist()]
    assert len(labels) == 300
    assert 17 not in labels
    assert len(set(labels)) == 299


def test_flipped_bytes_are_never_wrong_data(pack: Any, tmp_path: Path) -> None:
    """Flip one byte after the other all over a small data set: each time the right samples or a typed error."""
    path = Path(shutil.copytree(pack(100), tmp_path / "flipped"))
    files = [p for p in path.rglob("*") if p.is_file()]
    for file in files:
        content = file.read_bytes()
        step = max(1, len(content) // 25)
        for at in range(step // 2, len(content), step):
            damaged = bytearray(content)
            damaged[at] ^= 0x55
            file.write_bytes(damaged)
            try:
                labels = []
                for image, label in redox.RedoxDataset(path, batch_size=8):
                    assert number_of(image) == label
                    labels.append(label)
                assert sorted(labels) == list(range(100))
            except redox.Error:
                pass  # told; any other exception fails the test
        file.write_bytes(content)


@pytest.mark.parametrize("keep", [0, 100, 0.5, -1])
@pytest.mark.parametrize("name", ["manifest.json", "chunks.idx", "shards/00000.rdx"])
def test_truncated_files(pack: Any, tmp_path: Path, name: str, keep: float) -> None:
    path = Path(shutil.copytree(pack(100), tmp_path / "cut"))
    content = (path / name).read_bytes()
    size = int(keep * len(content)) if isinstance(keep, float) else (keep if keep >= 0 else len(content) - 1)
    (path / name).write_bytes(content[:size])
    try:
        labels = []
        for image, label in redox.RedoxDataset(path, batch_size=8):
            assert number_of(image) == label
            labels.append(label)
        assert keep == -1  # the last byte of a shard is padding
        assert sorted(labels) == list(range(100))
    except redox.Error:
        pass
