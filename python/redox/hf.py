"""Hugging Face Trainer: `TrainerMixin` gives it its loaders from Redox and resumes from their state.

The Trainer would wrap a loader so that rank 0 reads for all, and to resume it would read and throw away all batches
that came before, in the order of the wrong epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from redox.errors import StateError
from redox.iterable import RedoxDataset
from redox.loader import DataLoader

try:
    import_module("accelerate")
    transformers: Any = import_module("transformers")
    trainer: Any = import_module("transformers.trainer")
    callbacks: Any = import_module("transformers.trainer_callback")
except ImportError:
    raise ImportError("redox.hf needs the Hugging Face Trainer: pip install 'redox-loader[hf]'") from None

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["TrainerMixin"]


class TrainerMixin:
    """Mixed into `transformers.Trainer`, makes it load `RedoxDataset`s and resume exactly.

        >>> class Trainer(redox.hf.TrainerMixin, transformers.Trainer): ...               # doctest: +SKIP
        >>> Trainer(model, args, train_dataset=redox.RedoxDataset(...)).train()           # doctest: +SKIP

    The data sets' `batch_size` must be the Trainer's of one process. Other data sets are loaded as before. Checkpoints
    hold the loader's state, in `trainer_state.json`. A run resumes with other numbers of workers, and with other
    numbers of processes if as many samples as before make a step: the Trainer counts steps.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.add_callback(_LoaderState())  # type: ignore[attr-defined]

    def get_train_dataloader(self) -> Any:
        """Return the loader of the training data."""
        dataset = self.train_dataset  # type: ignore[attr-defined]
        if not isinstance(dataset, RedoxDataset):
            return super().get_train_dataloader()  # type: ignore[misc]
        return self._loader(dataset, self._train_batch_size, "Training")  # type: ignore[attr-defined]

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """Return the loader of evaluation data."""
        chosen = self.eval_dataset if eval_dataset is None else eval_dataset  # type: ignore[attr-defined]
        if isinstance(eval_dataset, str):
            chosen = self.eval_dataset[eval_dataset]  # type: ignore[attr-defined]
        if not isinstance(chosen, RedoxDataset):
            return super().get_eval_dataloader(eval_dataset)  # type: ignore[misc]
        return self._loader(chosen, self.args.eval_batch_size, "Evaluation")  # type: ignore[attr-defined]

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """Return the loader of data to predict."""
        if not isinstance(test_dataset, RedoxDataset):
            return super().get_test_dataloader(test_dataset)  # type: ignore[misc]
        return self._loader(test_dataset, self.args.eval_batch_size, "test")  # type: ignore[attr-defined]

    def num_examples(self, dataloader: Any) -> int:
        """Return how many samples a loader's epoch has, all processes together."""
        if isinstance(dataloader, DataLoader):
            return dataloader.dataset.share.size  # type: ignore[attr-defined,no-any-return]
        return super().num_examples(dataloader)  # type: ignore[misc,no-any-return]

    def _loader(self, dataset: RedoxDataset, batch_size: int, description: str) -> DataLoader:
        args: Any = self.args  # type: ignore[attr-defined]
        if dataset.batch_size != batch_size:
            raise ValueError(
                f"{description}: RedoxDataset has batch_size={dataset.batch_size}, the Trainer {batch_size} for each "
                "process: give both the same"
            )
        workers = args.dataloader_num_workers
        options: dict[str, Any] = {"pin_memory": args.dataloader_pin_memory and torch.cuda.is_available()}
        if workers:
            options["persistent_workers"] = args.dataloader_persistent_workers
            options["prefetch_factor"] = args.dataloader_prefetch_factor
            options["worker_init_fn"] = partial(_seed_worker, args.process_index)
        if not dataset.batched:
            collator = self._get_collator_with_removed_columns(  # type: ignore[attr-defined]
                self.data_collator,  # type: ignore[attr-defined]
                description=description,
            )
            options["collate_fn"] = collator
        loader = DataLoader(dataset, num_workers=workers, **options)
        prepared: DataLoader = self.accelerator.prepare(loader)  # type: ignore[attr-defined] # it stays as it is
        return prepared

    def _inner_training_loop(self, *args: Any, **kwargs: Any) -> Any:
        with _skipping_by(self._skipped):
            return super()._inner_training_loop(*args, **kwargs)  # type: ignore[misc]

    def _skipped(self, loader: DataLoader, batches: int) -> DataLoader:
        """Let the loader go on where the checkpoint was made, after so many batches of the epoch."""
        state = _saved(self.state)  # type: ignore[attr-defined]
        if state is None:
            raise StateError(
                "the checkpoint has no state of a redox.DataLoader: it was not made with redox.hf.TrainerMixin"
            )
        loader.load_state_dict(state)
        done = loader.batches_before(state["position"])
        if done != batches:
            raise StateError(
                f"the checkpoint is from after {done} batches of an epoch, the Trainer takes its steps for {batches}: "
                "resume with the same gradient_accumulation_steps"
            )
        return loader


class _LoaderState(callbacks.TrainerCallback, callbacks.ExportableState):  # type: ignore[misc]
    """Puts the state of the training loader into checkpoints."""

    def __init__(self) -> None:
        self.loader: DataLoader | None = None
        self.data: dict[str, Any] | None = None  # what a checkpoint had

    def on_train_begin(self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **kwargs: Any) -> None:
        """Take note of the loader."""
        self.loader = train_dataloader if isinstance(train_dataloader, DataLoader) else None
        saved = _saved(state)
        if self.loader is not None and saved is not None and saved["global_batch"] != self.loader.total_batch_size:
            raise StateError(
                f"the checkpoint counts batches of {saved['global_batch']} samples (all processes together), now they "
                f"have {self.loader.total_batch_size}, and the Trainer counts nothing else: resume with the same "
                "per_device_train_batch_size x processes"
            )
        state.stateful_callbacks.setdefault(type(self).__name__, self.state())

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return {"args": {}, "attributes": {"data": None if self.loader is None else self.loader.state_dict()}}


def _saved(state: Any) -> dict[str, Any] | None:
    """Return the loader's state in the state of a Trainer that was restored."""
    kept = (state.stateful_callbacks or {}).get(_LoaderState.__name__)
    data: dict[str, Any] | None = kept.get("attributes", {}).get("data") if isinstance(kept, dict) else None
    return data


@contextmanager
def _skipping_by(skipped: Callable[[DataLoader, int], DataLoader]) -> Iterator[None]:
    """Let the Trainer skip the batches of our loaders by their state; it has no method for it to be overridden."""
    others = trainer.skip_first_batches

    def skip(loader: Any, num_batches: int = 0) -> Any:
        return skipped(loader, num_batches) if isinstance(loader, DataLoader) else others(loader, num_batches)

    trainer.skip_first_batches = skip
    try:
        yield
    finally:
        trainer.skip_first_batches = others


def _seed_worker(rank: int, _worker: int) -> None:
    """Give the workers of each rank their own random numbers: the Trainer seeds all ranks alike."""
    transformers.set_seed((torch.initial_seed() + 7919 * rank) % (1 << 32))
