"""LitData with `local:`, its word for mounted storage: chunks are copied to a local folder and read there."""

from __future__ import annotations

from functools import partial

from peers.litdata_peer import PACKAGE, resume, state, write
from peers.litdata_peer import load as _load

__all__ = ["PACKAGE", "load", "resume", "state", "write"]

load = partial(_load, remote=True)
