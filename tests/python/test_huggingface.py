"""Accelerate and the Hugging Face Trainer: what they leave alone, what is refused, resuming on two processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redox
from conftest import joined

torch = pytest.importorskip("torch")
accelerate = pytest.importorskip("accelerate", reason="Accelerate is not installed: pip install accelerate")
DataLoader = torch.utils.data.DataLoader

N = 203
B = 16

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def path(pack: Any) -> str:
    return str(pack(N, "dict"))


@pytest.fixture(scope="module")
def order(path: str) -> list[list[int]]:
    """The first epochs."""
    ds = redox.RedoxDataset(path, batch_size=B)
    return [[sample["label"] for sample in ds] for _ in range(3)]


@pytest.fixture(scope="module")
def stored(path: str) -> list[int]:
    """The stored order."""
    return [sample["label"] for sample in redox.RedoxDataset(path, batch_size=B, shuffle=False)]


def launch(folder: Path, script: str, *words: object) -> list[Any]:
    """Run a script as two processes under torchrun; return what each wrote into rank0.json and rank1.json."""
    (folder / "train.py").write_text(script)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", folder / "train.py"]
    done = subprocess.run(
        [*map(str, command), str(folder), *map(str, words)], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]


# ---- Accelerate ------------------------------------------------------------------------------------------------------


@pytest.fixture
def accelerator() -> Any:
    accelerate.state.AcceleratorState._reset_state(True)
    accelerate.state.GradientState._reset_state()
    yield accelerate.Accelerator(cpu=True, gradient_accumulation_steps=4)
    accelerate.state.AcceleratorState._reset_state(True)
    accelerate.state.GradientState._reset_state()


def test_our_loader_is_left_alone(accelerator: Any, path: str) -> None:
    loader = redox.DataLoader(redox.RedoxDataset(path, batch_size=B))
    assert accelerator.prepare(loader) is loader
    assert loader.total_batch_size == B


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dispatch", [None, False])
def test_loaders_that_deal_are_refused(accelerator: Any, path: str, workers: int, dispatch: bool | None) -> None:
    plain = DataLoader(redox.RedoxDataset(path, batch_size=B), batch_size=B, num_workers=workers)
    dealt = accelerate.data_loader.prepare_data_loader(
        plain, num_processes=2, process_index=0, put_on_device=True, dispatch_batches=dispatch
    )
    with pytest.raises(RuntimeError, match=r"redox\.DataLoader"):
        next(iter(dealt))
    with pytest.raises(RuntimeError, match=r"redox\.DataLoader"):
        next(iter(accelerator.prepare(plain)))


def test_map_style_is_dealt(accelerator: Any, path: str) -> None:
    seen = []
    for rank in range(2):
        loader = DataLoader(redox.MapDataset(path), batch_size=8)
        dealt = accelerate.data_loader.prepare_data_loader(loader, num_processes=2, process_index=rank)
        seen += [label for batch in dealt for label in batch["label"].tolist()]
    assert set(seen) == set(range(N))


@pytest.mark.parametrize("workers", [0, 1])
def test_gradients_are_stepped_at_the_end_of_an_epoch(accelerator: Any, path: str, workers: int) -> None:
    model = accelerator.prepare(torch.nn.Linear(1, 1))
    loader = accelerator.prepare(redox.DataLoader(redox.RedoxDataset(path, batch_size=B), num_workers=workers))
    for _ in range(2):
        synced = []
        for _ in loader:
            with accelerator.accumulate(model):
                synced.append(accelerator.sync_gradients)
        assert synced == [(i + 1) % 4 == 0 or i == 12 for i in range(13)]
    assert not accelerator.gradient_state.in_dataloader


_ACCELERATE = """
import json, sys
import torch, accelerate, redox
folder, path, checkpoint = sys.argv[1:4]
accelerator = accelerate.Accelerator(cpu=True)
data = redox.RedoxDataset(path, batch_size=8)
valid = redox.RedoxDataset(path, batch_size=8, shuffle=False)
model = torch.nn.Linear(1, 1)
model, optimizer, loader, valid = accelerator.prepare(
    model, torch.optim.SGD(model.parameters(), 0.1), redox.DataLoader(data, num_workers=1), redox.DataLoader(valid))
if checkpoint == "resume":
    accelerator.load_state(folder + "/state")
seen = []
for epoch in range(2):
    for batch in loader:
        loss = model(batch["label"].float().unsqueeze(1)).mean()
        accelerator.backward(loss)
        optimizer.step()
        seen.append(batch["label"].tolist())
        if checkpoint == "save" and len(seen) == 17:
            accelerator.save_state(folder + "/state")
gathered = [accelerator.gather_for_metrics(batch["label"]).tolist() for batch in valid]
with open(f"{folder}/rank{accelerator.process_index}.json", "w") as file:
    json.dump({"seen": seen, "gathered": gathered}, file)
"""


def test_accelerate_on_two_processes(path: str, stored: list[int], tmp_path: Path) -> None:
    first = launch(tmp_path, _ACCELERATE, path, "save")
    assert sorted(set(joined(first[0]["seen"][:13] + first[1]["seen"][:13]))) == list(range(N))
    for rank in first:
        assert joined(rank["gathered"]) == stored  # in order, without padding
    again = launch(tmp_path, _ACCELERATE, path, "resume")
    for before, after in zip(first, again, strict=True):
        assert after["seen"][:9] == before["seen"][17:]
        assert len(after["seen"]) == 9 + 13  # and then the next epoch
    third = [joined(rank["seen"][9:]) for rank in again]
    assert set(joined(third)) == set(range(N))


# ---- the Trainer -----------------------------------------------------------------------------------------------------

_TRAINER = """
import json, os, sys
import torch, transformers, redox, redox.hf
transformers.logging.set_verbosity_error()

class Trainer(redox.hf.TrainerMixin, transformers.Trainer):
    pass

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.seen = torch.nn.Linear(1, 1), []

    def forward(self, image, labels):
        if self.training:
            self.seen.append(labels.tolist())
        return {"loss": self.layer(labels.float().unsqueeze(1)).mean() * 0, "logits": labels.float()}

def train(path, folder, resume=None, batch=8, workers=0, accumulate=1, epochs=2, every=5, data=None):
    args = transformers.TrainingArguments(
        folder, per_device_train_batch_size=batch, per_device_eval_batch_size=batch, num_train_epochs=epochs,
        use_cpu=True, save_steps=every, save_strategy="steps", dataloader_num_workers=workers,
        gradient_accumulation_steps=accumulate,
        report_to=[], disable_tqdm=True, logging_strategy="no", remove_unused_columns=True)
    valid = redox.RedoxDataset(path, batch_size=batch, shuffle=False)
    data = data or redox.RedoxDataset(path, batch_size=batch)
    trainer = Trainer(Model(), args, train_dataset=data, eval_dataset=valid)
    trainer.train(resume_from_checkpoint=resume)
    return trainer
"""
_TWO = """
folder, path, resume, workers = sys.argv[1:5]
trainer = train(path, folder, folder + "/" + resume if resume != "-" else None, workers=int(workers))
seen = trainer.model.seen
predicted = trainer.predict(trainer.eval_dataset).predictions.tolist()
examples = trainer.num_examples(trainer.get_train_dataloader())
with open(f"{folder}/rank{trainer.args.process_index}.json", "w") as file:
    json.dump({"seen": seen, "predicted": predicted, "examples": examples}, file)
"""


@pytest.fixture(scope="module")
def train() -> Any:
    pytest.importorskip("transformers", reason="transformers is not installed: pip install 'redox-loader[hf]'")
    code: dict[str, Any] = {}
    exec(_TRAINER, code)
    return code["train"]


@pytest.mark.parametrize(("workers", "accumulate"), [(0, 1), (1, 4)])
def test_trainer_resumes(train: Any, path: str, order: Any, tmp_path: Path, workers: int, accumulate: int) -> None:
    whole = train(path, str(tmp_path), batch=B, workers=workers, accumulate=accumulate, every=3)
    assert joined(whole.model.seen) == order[0] + order[1]
    for checkpoint in tmp_path.glob("checkpoint-*"):
        step = int(checkpoint.name.partition("-")[2])
        rest = train(path, str(tmp_path / "again"), str(checkpoint), B, workers, accumulate, epochs=3, every=1000)
        epoch, batches = divmod(step, -(-13 // accumulate))
        assert joined(rest.model.seen) == joined(order[epoch:])[batches * accumulate * B :]
        assert rest.state.global_step == 3 * -(-13 // accumulate)


def test_trainer_refuses_other_steps(train: Any, path: str, tmp_path: Path) -> None:
    train(path, str(tmp_path), batch=B, every=5, epochs=1)
    with pytest.raises(redox.StateError, match="batches of 16 samples"):
        train(path, str(tmp_path / "again"), str(tmp_path / "checkpoint-5"), batch=32)
    with pytest.raises(redox.StateError, match="gradient_accumulation_steps"):
        train(path, str(tmp_path / "again"), str(tmp_path / "checkpoint-5"), batch=B, accumulate=2)
    with pytest.raises(ValueError, match=r"batch_size=16, the Trainer 8"):
        train(path, str(tmp_path / "again"), batch=8, data=redox.RedoxDataset(path, batch_size=16))


def test_trainer_on_two_processes(train: Any, path: str, order: Any, stored: list[int], tmp_path: Path) -> None:
    first = launch(tmp_path, _TRAINER + _TWO, path, "-", 1)
    for number in range(13):
        together = set(first[0]["seen"][number] + first[1]["seen"][number])
        assert together >= set(order[0][number * B : (number + 1) * B])
    for rank in first:
        assert rank["examples"] == N
        assert rank["predicted"] == stored  # in order, without padding
    again = launch(tmp_path, _TRAINER + _TWO, path, "checkpoint-15", 0)
    for before, after in zip(first, again, strict=True):
        assert after["seen"] == before["seen"][15:]
