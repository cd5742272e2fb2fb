"""Training with Lightning: its launcher, its checkpoints, resuming with other batch sizes, ranks and workers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redox
from conftest import joined

pytest.importorskip("torch")
lightning = pytest.importorskip("lightning", reason="Lightning is not installed: pip install 'redox-loader[lightning]'")
ModelCheckpoint = pytest.importorskip("lightning.pytorch.callbacks").ModelCheckpoint

N = 203
B = 16
_TRAINING = """
import json, os, sys, warnings
warnings.simplefilter("ignore")
import lightning, torch
from lightning.pytorch.callbacks import ModelCheckpoint
import redox


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen = []

    def training_step(self, batch, number):
        self.seen.append([self.current_epoch, number, batch[1].tolist()])
        return self.layer(batch[1].float().unsqueeze(1)).mean() * 0

    def validation_step(self, batch, number):
        pass

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def train(
    path, folder, *, batch=16, devices=1, workers=0, every=None, checkpoint=None, resume=True, epochs=2, **options
):
    data = redox.RedoxDataset(path, batch_size=batch)
    callbacks = [ModelCheckpoint(folder, filename="{step}", every_n_train_steps=every, save_top_k=-1)]
    if resume:
        callbacks.append(redox.lightning.ResumeCallback())
    trainer = lightning.Trainer(
        accelerator="cpu", devices=devices, strategy="ddp" if devices > 1 else "auto", max_epochs=epochs,
        callbacks=callbacks, logger=False, enable_progress_bar=False, enable_model_summary=False, **options,
    )
    model = Model()
    trainer.fit(model, redox.DataLoader(data, num_workers=workers), ckpt_path=checkpoint)
    return trainer, model.seen
"""
_SCRIPT = """
from training import *
if __name__ == "__main__":
    path, folder = sys.argv[1:3]
    trainer, seen = train(path, folder, **json.loads(sys.argv[3]))
    with open(os.path.join(folder, f"seen{trainer.global_rank}.json"), "w") as file:
        json.dump(seen, file)
"""

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Train in this process: `train(path, folder, batch=, workers=, every=, checkpoint=)`."""
    code: dict[str, Any] = {}
    exec(_TRAINING, code)
    return code["train"]


@pytest.fixture(scope="module")
def path(pack: Any) -> str:
    return str(pack(N))


@pytest.fixture(scope="module")
def order(path: str) -> list[list[int]]:
    """The first epochs."""
    ds = redox.RedoxDataset(path, batch_size=B)
    return [[label for _, label in ds] for _ in range(4)]


@pytest.fixture(scope="module")
def checkpoints(train: Any, path: str, order: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of every third step of two epochs, and of the end of each."""
    folder = tmp_path_factory.mktemp("lightning")
    _, seen = train(path, folder, every=3)
    assert flat(seen) == order[0] + order[1]
    train(path, folder / "ends")
    return folder


def flat(seen: Any) -> list[int]:
    return [label for _, _, labels in seen for label in labels]


@pytest.mark.parametrize(("step", "batch", "workers"), [(3, 16, 0), (6, 32, 0), (9, 7, 2), (12, 32, 0), (18, 40, 0)])
def test_resumes_in_the_middle(
    train: Any, path: str, order: Any, checkpoints: Path, tmp_path: Path, step: int, batch: int, workers: int
) -> None:
    checkpoint = checkpoints / f"step={step}.ckpt"
    trainer, seen = train(path, tmp_path, batch=batch, workers=workers, checkpoint=checkpoint, epochs=3)
    done = step * B if step <= 13 else N + (step - 13) * B
    assert flat(seen) == [label for epoch in order[:3] for label in epoch][done:]
    for epoch in range(done // N, 3):
        numbers = [number for e, number, _ in seen if e == epoch]
        assert numbers[-1] == -(-N // batch) - 1  # Lightning's count ends where the epoch does
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert trainer.current_epoch == 3


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("batch", [16, 32])
def test_resumes_after_the_end_of_an_epoch(
    train: Any, path: str, order: Any, checkpoints: Path, tmp_path: Path, batch: int, workers: int
) -> None:
    _, seen = train(
        path, tmp_path, batch=batch, workers=workers, checkpoint=checkpoints / "ends" / "step=13.ckpt", epochs=3
    )
    assert flat(seen) == order[1] + order[2]
    assert [epoch for epoch, _, _ in seen] == sorted([1, 2] * (-(-N // batch)))


def test_another_batch_size_without_the_callback_is_refused(
    train: Any, path: str, order: Any, checkpoints: Path, tmp_path: Path
) -> None:
    checkpoint = checkpoints / "step=6.ckpt"
    _, seen = train(path, tmp_path, checkpoint=checkpoint, resume=False)
    assert flat(seen) == order[0][6 * B :] + order[1]
    with pytest.raises(redox.StateError, match=r"16 samples .* 32: .*ResumeCallback"):
        train(path, tmp_path, batch=32, checkpoint=checkpoint, resume=False)


def test_two_processes(path: str, order: Any, tmp_path: Path) -> None:
    """Lightning's own launcher starts the second one, and sets no RANK. The second run has another global batch."""
    (tmp_path / "training.py").write_text(_TRAINING)
    (tmp_path / "train.py").write_text(_SCRIPT)

    def run(name: str, **options: Any) -> list[Any]:
        folder = tmp_path / name
        command = [sys.executable, str(tmp_path / "train.py"), path, str(folder), json.dumps(options)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stderr[-4000:]
        return [json.loads((folder / f"seen{rank}.json").read_text()) for rank in range(options["devices"])]

    first = run("first", devices=2, batch=8, every=4, epochs=1, workers=1)
    for number, (a, b) in enumerate(zip(*first, strict=True)):
        assert set(a[2] + b[2]) >= set(order[0][number * B : (number + 1) * B])
    assert set(flat(first[0]) + flat(first[1])) == set(range(N))
    second = run("second", devices=2, batch=20, checkpoint=str(tmp_path / "first" / "step=4.ckpt"), epochs=2)
    assert [a[:2] for a in second[0]] == [b[:2] for b in second[1]]
    begun = [a[2] + b[2] for a, b in zip(*second, strict=True) if a[0] == 0]
    rest = [*order[0][4 * B :], order[0][0]]  # padded to equal numbers
    assert sorted(joined(begun)) == sorted(rest)
    assert sorted(set(joined(a[2] + b[2] for a, b in zip(*second, strict=True) if a[0] == 1))) == list(range(N))


def test_evaluation_and_prediction(train: Any, path: str, tmp_path: Path) -> None:
    trainer, _ = train(path, tmp_path, epochs=1, limit_train_batches=2)
    model = trainer.lightning_module
    model.predict_step = lambda batch: batch[1]
    stored = redox.RedoxDataset(path, batch_size=B, shuffle=False)
    loader = redox.DataLoader(stored)
    predicted = trainer.predict(model, loader)
    assert [label for labels in predicted for label in labels.tolist()] == [label for _, label in stored]
    trainer.validate(model, loader, verbose=False)
