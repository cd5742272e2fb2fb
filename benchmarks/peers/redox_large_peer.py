"""Redox with the chunks that a data set of 4 GiB and more has by default, and half a GiB of memory."""

from __future__ import annotations

from functools import partial

from peers.redox_peer import PACKAGE, SHUFFLES, resume, state
from peers.redox_peer import load as _load
from peers.redox_peer import write as _write

__all__ = ["PACKAGE", "SHUFFLES", "load", "resume", "state", "write"]

write = partial(_write, chunk_size="8mb")
load = partial(_load, memory_limit="512mb")
