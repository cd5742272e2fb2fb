"""The processes that `torchrun` starts, for the demonstration: who am I, and what did all of us do together."""

from __future__ import annotations

import os
from typing import Any

__all__ = ["Ranks"]


class Ranks:
    """This process among the ranks of a demonstration; alone without `torchrun`. A context manager."""

    def __init__(self) -> None:
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0")) if self.size > 1 else 0

    def __enter__(self) -> Ranks:
        if self.size > 1:
            import torch.distributed as dist

            dist.init_process_group("gloo")
        return self

    def __exit__(self, *exception: object) -> None:
        if self.size > 1:
            import torch.distributed as dist

            dist.destroy_process_group()

    def told(self, value: Any) -> Any:
        """Return what rank 0 calls this with."""
        if self.size == 1:
            return value
        import torch.distributed as dist

        box = [value]
        dist.broadcast_object_list(box)
        return box[0]

    def total(self, number: int) -> int:
        """Return the sum over the ranks, when all have come here."""
        if self.size == 1:
            return number
        import torch
        import torch.distributed as dist

        box = torch.tensor([number])
        dist.all_reduce(box)
        return int(box)

    def parallel(self, model: Any) -> Any:
        """Return a model whose ranks step together."""
        if self.size == 1:
            return model
        from torch.nn.parallel import DistributedDataParallel

        return DistributedDataParallel(model)

    def sampler(self, data: Any) -> Any:
        """Return what deals a map-style data set to the ranks; None for one rank."""
        if self.size == 1:
            return None
        from torch.utils.data import DistributedSampler

        return DistributedSampler(data)
