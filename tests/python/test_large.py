"""Large byte strings, which the library puts straight into Python's own."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redox

LARGE = 40 << 10  # bytes of most values: enough to be worth it
FIELDS = {"x": "bytes?", "words": "str", "said": "json", "label": "int", "pair": "float32[2]"}


def sample(number: int) -> dict[str, Any]:
    values = random.Random(number)
    size = (0, 1, LARGE * 4)[number % 3] if number % 7 == 0 else values.randrange(LARGE, 2 * LARGE)
    return {
        "x": None if number % 11 == 0 else values.randbytes(size),
        "words": "ä" * (number % 5),
        "said": {"number": number},
        "label": number,
        "pair": np.array([number, -number], np.float32),
    }


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    to = tmp_path_factory.mktemp("large") / "data.redox"
    with redox.Writer(to, fields=FIELDS) as writer:
        for number in range(300):
            writer.write(sample(number))
    return str(to)


def same(got: dict[str, Any], want: dict[str, Any]) -> bool:
    return all(np.array_equal(got[name], want[name]) if name == "pair" else got[name] == want[name] for name in FIELDS)


def test_samples_are_those_that_were_packed(path: str) -> None:
    seen = []
    for got in redox.RedoxDataset(path, batch_size=16):
        assert same(got, sample(int(got["label"])))
        seen.append(int(got["label"]))
    assert sorted(seen) == list(range(300))


def test_batches_stay_what_they_were(path: str) -> None:
    ds = redox.RedoxDataset(path, batch_size=16, batched=True)
    kept = [batch for _ in range(2) for batch in ds]
    assert [len(batch["x"]) for batch in kept] == 2 * [*[16] * 18, 12]
    for batch in kept:
        for row, number in enumerate(batch["label"].tolist()):
            assert same({name: batch[name][row] for name in FIELDS}, sample(number))


def test_workers_give_the_same(path: str) -> None:
    torch = pytest.importorskip("torch")
    orders = []
    for workers in (0, 2):
        ds = redox.RedoxDataset(path, batch_size=16)
        loader = torch.utils.data.DataLoader(ds, batch_size=16, num_workers=workers, collate_fn=list)
        batches = list(loader)
        assert all(same(got, sample(int(got["label"]))) for batch in batches for got in batch)
        orders.append([int(got["label"]) for batch in batches for got in batch])
    assert orders[0] == orders[1]


def test_an_epoch_goes_on_where_it_was_left(path: str) -> None:
    whole = [sample["label"] for sample in redox.RedoxDataset(path, batch_size=16)]
    ds = redox.RedoxDataset(path, batch_size=16)
    first = []
    for got in ds:
        first.append(got["label"])
        if len(first) == 64:
            break
    again = redox.RedoxDataset(path, batch_size=16)
    again.load_state_dict(ds.state_dict())
    assert first + [got["label"] for got in again] == whole


def test_two_iterators_at_once(path: str) -> None:
    ds = redox.RedoxDataset(path, batch_size=16, shuffle=False)
    for number, (one, other) in enumerate(zip(ds, ds, strict=True)):
        assert one["label"] == other["label"]
        assert same(one, sample(int(one["label"])))
        assert one["x"] is not other["x"] or not one["x"], number


def test_a_corrupt_sample_is_replaced(tmp_path: Path) -> None:
    """Its neighbour's value has another size than what was made ready for it."""
    to = tmp_path / "data.redox"
    rows = [random.Random(number).randbytes(LARGE + 100 * number) for number in range(64)]
    with redox.Writer(to, fields={"x": "bytes"}, shuffle=False, codec="none", chunk_size="1mb") as writer:
        for row in rows:
            writer.write({"x": row})
    (shard,) = (to / "shards").iterdir()
    stored = bytearray(shard.read_bytes())
    at = stored.find(rows[40][:64])
    assert at > 0
    stored[at + 500] ^= 1
    shard.write_bytes(stored)
    ds = redox.RedoxDataset(str(to), batch_size=8, on_error="skip")
    got = [rows.index(one["x"]) for one in ds]
    assert len(got) == 64
    assert set(got) == set(range(64)) - {40}
    assert ds.stats()["epoch"]["skipped"] == 1
    with pytest.raises(redox.CorruptError, match="sample 40"):
        list(redox.RedoxDataset(str(to), batch_size=8))
