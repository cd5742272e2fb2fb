"""What a data set is: `redox.Info`."""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any

from . import _native
from .paths import path_text

BATCH_SIZE = 256  # that memory and mixing are told for, unless asked otherwise
POOR_VIF = 1.5


class Info:
    """The facts of a data set.

    `memory` and `mixing` are computed when first asked for, without reading samples; all else is known at once.

    Args:
        raw: the core's facts.
        path: where the data set is.
        skipped: samples that packing left out, as {"source", "key", "error"}.

    Attributes:
        path: where it is.
        skipped: as above; empty unless it came from `redox.pack(on_error="skip")`.
    """

    def __init__(
        self, raw: dict[str, Any], path: str | os.PathLike[str], skipped: list[dict[str, Any]] | None = None
    ) -> None:
        self._raw = raw
        self.path = os.fspath(path)
        self.skipped = skipped or []

    @classmethod
    def of(cls, path: str | os.PathLike[str], skipped: list[dict[str, Any]] | None = None) -> Info:
        """Reads the facts of the data set at `path`."""
        dataset = _native.dataset_open(path_text("path", path))
        try:
            return cls(_native.dataset_info(dataset), path, skipped)
        finally:
            _native.dataset_close(dataset)

    @property
    def format_version(self) -> str:
        """Version of the format, like "1.0"."""
        return str(self._raw["format_version"]).removeprefix("redox ")

    @property
    def fingerprint(self) -> str:
        """Identity of the content, whatever the codec."""
        return str(self._raw["fingerprint"])

    @property
    def samples(self) -> int:
        return int(self._raw["samples"])

    @property
    def chunks(self) -> int:
        return int(self._raw["chunks"])

    @property
    def shards(self) -> int:
        """Number of shard files."""
        return int(self._raw["shards"])

    @property
    def bytes(self) -> int:
        """Bytes of all samples, decoded."""
        return int(self._raw["bytes"])

    @property
    def stored_bytes(self) -> int:
        """Bytes that an epoch reads."""
        return int(self._raw["stored_bytes"])

    @property
    def codec(self) -> str:
        return str(self._raw["codec"])

    @property
    def codec_reason(self) -> str:
        """Why `codec="auto"` chose this one; empty if it was given."""
        return str(self._raw.get("codec_reason") or "")

    @property
    def fields(self) -> dict[str, str]:
        """Kinds by field name, as in `redox.pack(fields=…)`."""
        return {f["name"]: f["written"] for f in self._raw["fields"]}

    @property
    def layout(self) -> str:
        """How a sample holds its fields: "tuple", "dict" or "scalar"."""
        return str(self._raw["layout"])

    @property
    def classes(self) -> list[str] | None:
        """Class names, by label."""
        found = self._raw.get("classes")
        return None if found is None else list(found)

    @property
    def class_counts(self) -> dict[int, int] | None:
        """Samples by label, unless there are too many labels."""
        found = self._raw.get("class_counts")
        return None if found is None else {int(label): int(n) for label, n in found.items()}

    @property
    def shuffled(self) -> bool:
        """Whether packing spread neighbours over the chunks."""
        return bool(self._raw.get("shuffled"))

    @property
    def window(self) -> int:
        """The default window, in chunks."""
        given = self._raw.get("window")
        return int(given) if given else min(self.chunks, 128, max(16, self.chunks // 8))

    @cached_property
    def memory(self) -> dict[str, Any]:
        """What a run with the default window takes: {"needed": bytes, "batch_size", "world_size"}."""
        needed = self._simulated.get("memory_needed")
        return {"needed": None if needed is None else int(needed), "batch_size": BATCH_SIZE, "world_size": 1}

    @cached_property
    def mixing(self) -> dict[str, Any]:
        """How well batches are mixed: {"rho", "vif", "batch_size", "advice"}.

        `rho`: correlation of labels inside chunks, None without labels. `vif`: variance of the batches' label means
        over that of a full shuffle, 1 is perfect. `advice`: what to do about a poor one, else None.
        """
        rho = self._raw.get("rho")
        vif = predicted_vif(rho, BATCH_SIZE, self.window, self.chunks)
        return {
            "rho": rho,
            "vif": vif,
            "batch_size": BATCH_SIZE,
            "advice": mixing_advice(vif, self.window, self.shuffled),
        }

    @cached_property
    def _simulated(self) -> dict[str, Any]:
        dataset = _native.dataset_open(self.path)
        try:
            return _native.simulate(dataset, {"batch_size": BATCH_SIZE})
        finally:
            _native.dataset_close(dataset)

    def to_json(self) -> dict[str, Any]:
        """Everything, as plain values."""
        names = (
            *("path", "format_version", "fingerprint", "samples", "chunks", "shards", "bytes", "stored_bytes", "codec"),
            *("codec_reason", "fields", "layout", "classes", "class_counts", "shuffled", "window", "memory", "mixing"),
            "skipped",
        )
        return {name: getattr(self, name) for name in names}

    def __repr__(self) -> str:
        return f"redox.Info({self.path!r}: {self.samples} samples in {self.chunks} chunks, {self.stored_bytes} bytes)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Info) and (self._raw, self.path) == (other._raw, other.path)

    __hash__ = None  # type: ignore[assignment]


def predicted_vif(rho: float | None, batch_size: int, window: int, chunks: int) -> float | None:
    """The variance inflation that batches drawn from `window` of `chunks` open chunks have; None if rho is unknown."""
    if rho is None:
        return None
    return 1 + max(0.0, rho) * (batch_size - 1) * max(0.0, 1 / max(1, window) - 1 / max(1, chunks))


def mixing_advice(vif: float | None, window: int, shuffled: bool) -> str | None:
    """What to do about poor mixing; None if it is good enough or unknown."""
    if vif is None or vif <= POOR_VIF:
        return None
    if not shuffled:
        return (
            f"batches are mixed poorly (variance {vif:.1f} times that of a full shuffle): the data set was packed with"
            " shuffle=False; pack it again with shuffle=True"
        )
    return (
        f"batches are mixed poorly (variance {vif:.1f} times that of a full shuffle):"
        f" open more chunks, window={2 * window} or more"
    )
