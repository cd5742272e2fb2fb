"""What users are told when nothing comes, and what the log says: of storage that stands still, and of engines."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redox
from conftest import pixels
from redox import engine

torch = pytest.importorskip("torch")
DataLoader = torch.utils.data.DataLoader


@pytest.fixture
def still(pack: Any, tmp_path: Path) -> str:
    """A data set whose storage stands still: opening a shard never ends."""
    path = Path(shutil.copytree(pack(300), tmp_path / "still"))
    for shard in (path / "shards").iterdir():
        shard.unlink()
        os.mkfifo(shard)
    return str(path)


def named(error: BaseException) -> None:
    """A stall names the chunk and its file."""
    assert re.search(r"chunk \d+ \(.*/shards/00000\.rdx\)", str(error)), error


def test_in_process(still: str, caplog: pytest.LogCaptureFixture) -> None:
    ds = redox.RedoxDataset(still, batch_size=16, timeout=0.5)
    with caplog.at_level(logging.WARNING, logger="redox"):
        samples = iter(ds)
        with pytest.raises(redox.StallError) as caught:
            next(samples)
        with pytest.raises(redox.StallError):  # the same stall
            next(samples)
    named(caught.value)
    assert caught.value.shard == 0
    assert caught.value.chunk is not None
    (record,) = caplog.records
    for words in (
        "memory: ",
        "in flight",
        f"read all of chunk {caught.value.chunk}, shard 0",
        "batch 0: being assembled",
    ):
        assert words in record.message, record.message


_WORKERS = """
import logging, sys, redox
from torch.utils.data import DataLoader
logging.basicConfig(filename=sys.argv[2], format="%(process)d %(name)s %(levelname)s %(message)s")
ds = redox.RedoxDataset(sys.argv[1], batch_size=16, timeout=1.0)
try:
    list(DataLoader(ds, 16, num_workers=2))
except redox.StallError as error:
    print(error)
"""


def test_with_workers(still: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    done = subprocess.run(
        [sys.executable, "-c", _WORKERS, still, str(log)], capture_output=True, text=True, timeout=60, check=True
    )
    named(redox.StallError(done.stdout))
    assert re.search(r"engine process \d+, rank 0", done.stdout)
    said = log.read_text()
    assert len(re.findall(r"^\d+ redox WARNING engine process", said, re.M)) == 1, said  # once, for both workers
    for words in ("read all of chunk", r"worker \d \(pid \d+\) has waited", "in flight", "trainer"):
        assert re.search(words, said), said


def damaged(path: str, folder: Path, *bad: int) -> str:
    """A copy of a data set in which the pixels of some source samples are damaged on disk."""
    copy = Path(shutil.copytree(path, folder / "damaged"))
    (shard,) = (copy / "shards").iterdir()
    content = bytearray(shard.read_bytes())
    for number in bad:
        content[content.find(pixels(number).tobytes()) + 50] ^= 1
    shard.write_bytes(content)
    return str(copy)


_SKIPS = """
import logging, sys, redox
from torch.utils.data import DataLoader
logging.basicConfig(filename=sys.argv[2], format="%(name)s %(levelname)s %(message)s")
ds = redox.RedoxDataset(sys.argv[1], batch_size=16, on_error="skip")
for _ in DataLoader(ds, 16, num_workers=int(sys.argv[3])):
    pass
print(ds.stats()["total"]["skipped"])
"""


@pytest.mark.parametrize("workers", ["1", "3"])
def test_the_engines_log_is_heard_once(pack: Any, tmp_path: Path, workers: str) -> None:
    path, log = damaged(pack(300), tmp_path, 17), tmp_path / "log"
    command = [sys.executable, "-c", _SKIPS, path, str(log), workers]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "1\n"
    (line,) = log.read_text().splitlines()
    assert re.match(r"redox WARNING sample \d+ .*corrupt", line)


def test_last_words_are_readable(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text('{"level":"warning","message":"a\\nb"}\n{"level":"error","message":"c"}\nkilled\n')
    with log.open("rb") as file:
        assert engine.words_of(file.fileno()) == "warning: a\nerror: c\nkilled"
