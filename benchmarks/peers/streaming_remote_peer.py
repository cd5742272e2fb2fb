"""MosaicML Streaming with `remote=`: shards are copied to a local folder first and read there."""

from __future__ import annotations

from functools import partial

from peers.streaming_peer import PACKAGE, resume, state, write
from peers.streaming_peer import load as _load

__all__ = ["PACKAGE", "load", "resume", "state", "write"]

load = partial(_load, remote=True)
