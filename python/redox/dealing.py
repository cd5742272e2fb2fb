"""Who deals samples to ranks: the data set does, so a loader that deals out what it gets from it must be refused.

Hugging Face Accelerate (and the Trainer, which uses it) wraps loaders of iterable data sets: either each rank keeps its
part of what it reads, or rank 0 reads for all. A `RedoxDataset` gives each rank its own part already; of two ranks each
would train on a half of its half, and nobody would notice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["RECIPE", "asked_by_lightning", "refuse_dealers"]

RECIPE = (
    "use loader = redox.DataLoader(dataset, ...), which Accelerator.prepare() leaves as it is; with the Hugging Face "
    "Trainer, class MyTrainer(redox.hf.TrainerMixin, transformers.Trainer)"
)

_DEALERS = frozenset({"DataLoaderShard", "DataLoaderDispatcher", "IterableDatasetShard"})
_HOMES = ("accelerate", "transformers")
_DEPTH = 12  # frames between a data set's __iter__ and the loader around PyTorch's, and some


def refuse_dealers(frame: FrameType | None) -> None:
    """Raise if one of the nearest callers deals out to ranks what it gets.

    Args:
        frame: Of whoever asks the data set.

    Raises:
        RuntimeError: It does; says what to do.
    """
    for _ in range(_DEPTH):
        if frame is None:
            return
        asker = _self_of(frame)
        if type(asker).__name__ in _DEALERS and type(asker).__module__.partition(".")[0] in _HOMES:
            raise RuntimeError(
                f"RedoxDataset is in a loader that deals its samples to ranks ({type(asker).__name__} of Accelerate), "
                f"but it gives each rank its own samples already, and most would be lost: {RECIPE}"
            )
        frame = frame.f_back


def asked_by_lightning(frame: FrameType) -> bool:
    """Return whether this is Lightning, which counts the batches of an epoch by itself.

    Args:
        frame: Of whoever asks a loader.
    """
    asker = type(_self_of(frame))
    return asker.__name__ == "CombinedLoader" and "lightning" in asker.__module__.partition(".")[0]


def _self_of(frame: FrameType) -> Any:
    # Not isinstance: Accelerate's loaders say that they are PyTorch's.
    return frame.f_locals.get("self") if "self" in frame.f_code.co_varnames else None
