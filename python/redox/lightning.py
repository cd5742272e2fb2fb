"""Lightning: `ResumeCallback` makes it resume exactly where a `redox.DataLoader` stood, with another batch size too.

Lightning saves and restores the state of a `redox.DataLoader` itself. But it counts the batches of an epoch by itself,
too, and believes its count: with twice the global batch it would end the resumed epoch at the half, silently. And after
a checkpoint from the end of an epoch it does not restore loaders at all, so that they would begin with epoch 0 again.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from redox.loader import DataLoader

__all__ = ["ResumeCallback"]


def _package() -> Any:
    names = ["lightning.pytorch", "pytorch_lightning"]
    names.sort(key=lambda name: name not in sys.modules)  # the one that the program uses
    for name in names:
        try:
            return import_module(name)
        except ImportError:
            continue
    raise ImportError("redox.lightning needs Lightning: pip install 'redox-loader[lightning]'")


_Callback: Any = _package().Callback


class ResumeCallback(_Callback):  # type: ignore[misc]
    """Lets Lightning's count of batches agree with where the loaders go on.

    >>> trainer = lightning.Trainer(callbacks=[redox.lightning.ResumeCallback()])         # doctest: +SKIP
    >>> trainer.fit(model, redox.DataLoader(dataset), ckpt_path="last.ckpt")              # doctest: +SKIP
    """

    def __init__(self) -> None:
        super().__init__()
        self._states: list[dict[str, Any]] = []  # of the loaders, in the checkpoint

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Take the loaders' states out of a checkpoint, and from them what Lightning must not resume without us."""
        loops = checkpoint.get("loops", {}).get("fit_loop", {})
        states = loops.get("state_dict", {}).get("combined_loader", [])
        self._states = [dict(state) if isinstance(state, dict) else {} for state in states]
        for state in states:
            if _is_ours(state):
                state.pop("global_batch")

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Bring loaders and count together, before the first batch is asked for."""
        states, self._states = self._states, []
        fit = trainer.fit_loop
        loaders = [
            x for x in fit._combined_loader.flattened if hasattr(x, "load_state_dict")
        ]  # as Lightning saves them
        ours = [
            (loader, state)
            for loader, state in zip(loaders, states, strict=False)
            if isinstance(loader, DataLoader) and _is_ours(state)
        ]
        if not ours:
            return
        if fit._combined_loader_states_to_load:  # Lightning has not restored them: the epoch had ended
            fit._combined_loader_states_to_load = []
            fit._data_fetcher.teardown()  # ends the workers of the wrong epoch, before they take the right one
            for loader, state in ours:
                loader.load_state_dict(state)
            iter(fit._data_fetcher)
        loader, state = max(ours, key=lambda one: len(one[0]))
        if state["global_batch"] != loader.total_batch_size:
            _recount(fit.epoch_loop.batch_progress.current, loader.batches_before(state["position"]))


def _is_ours(state: Any) -> bool:
    return isinstance(state, dict) and "plan_hash" in state and "global_batch" in state


def _recount(current: Any, done: int) -> None:
    """Let Lightning believe that so many batches of the epoch are done."""
    by = done - current.ready
    for name in ("ready", "started", "processed", "completed"):  # they differ where a checkpoint is from within a step
        setattr(current, name, getattr(current, name) + by)
