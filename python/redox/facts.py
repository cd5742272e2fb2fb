"""What is in a data set, read from its manifest without the library.

So that a data set object can be made, asked for its size, fields and classes, pickled and sent to worker processes
without starting the core. The core reads the same file again and checks it thoroughly when it opens the data set.
"""

from __future__ import annotations

import json
import os
import struct
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, cast

from redox.errors import FormatError, NotADatasetError, StorageError
from redox.paths import path_text
from redox.schema import Field, Layout

__all__ = ["Facts"]

MANIFEST = "manifest.json"
INDEX = "chunks.idx"
SHARDS = "shards"
JOURNAL = os.path.join(".redox-pack", "journal")
MAJOR = 1  # of the format that this package reads
_ENTRY = 64  # bytes of an entry of the chunk table, and of its header


@dataclass(frozen=True)
class Facts:
    """What a manifest says.

    Attributes:
        path: Folder of the data set, absolute.
        samples: How many there are.
        chunks: How many chunks they are in.
        bytes: Of all samples, not compressed.
        stored: Bytes of the shards.
        fields: The fields of every sample, in order.
        layout: How a sample looks: "tuple", "dict" or "scalar".
        classes: Names of the classes, by label; empty if there are none.
        fingerprint: Identifies the content.
    """

    path: str
    samples: int
    chunks: int
    bytes: int
    stored: int
    fields: tuple[Field, ...]
    layout: Layout
    classes: tuple[str, ...]
    fingerprint: str

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Facts:
        """Read the manifest of the data set at `path`.

        Raises:
            NotADatasetError: There is none.
            FormatError: It is not ours, or of a newer version.
            StorageError: It can't be read.
            ValueError: `path` has a scheme that is not supported.
        """
        folder = local_path(path)
        file = os.path.join(folder, MANIFEST)
        try:
            with open(file, encoding="utf-8") as stream:
                manifest = json.load(stream)
        except (FileNotFoundError, NotADirectoryError):
            raise NotADatasetError(_nothing_there(folder), path=folder) from None
        except OSError as error:
            raise StorageError(f"{file}: {error.strerror}", path=file, errno=error.errno) from error
        except ValueError as error:
            raise FormatError(f"{file} is not a manifest: {error}", path=file) from None
        try:
            return cls._parse(folder, manifest)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, FormatError):
                raise
            raise FormatError(f"{file} is not the manifest of a Redox data set ({error!r})", path=file) from None

    @classmethod
    def _parse(cls, folder: str, manifest: dict[str, Any]) -> Facts:
        word, _, version = str(manifest["format"]).partition(" ")
        if word != "redox":
            raise FormatError(f"{folder}: its manifest says format {manifest['format']!r}, not redox", path=folder)
        if int(version.split(".")[0]) != MAJOR:
            raise FormatError(
                f"{folder} has format version {version}, this Redox reads {MAJOR}.x: update redox-loader", path=folder
            )
        schema = manifest["schema"]
        return cls(
            path=folder,
            samples=int(manifest["samples"]),
            chunks=int(manifest["chunks"]),
            bytes=int(manifest["bytes"]),
            stored=sum(int(shard["bytes"]) for shard in manifest["shards"]),
            fields=tuple(_field(f) for f in schema["fields"]),
            layout=cast("Layout", schema["layout"]),
            classes=tuple(manifest.get("classes") or ()),
            fingerprint=str(manifest["fingerprint"]),
        )

    def chunk_of(self, number: int) -> tuple[int, int]:
        """Return the numbers of the shard and of the chunk that a sample is in.

        Read from the chunk table, by a few small reads: who asks has no library, and only after something went wrong.
        """

        def entry(chunk: int) -> tuple[int, int]:
            """Shard, first sample."""
            return cast("tuple[int, int]", struct.unpack("<I36xQ", os.pread(table, 48, _ENTRY * (1 + chunk))))

        table = os.open(os.path.join(self.path, INDEX), os.O_RDONLY | os.O_CLOEXEC)
        try:
            chunk = bisect_right(range(self.chunks), number, key=lambda chunk: entry(chunk)[1]) - 1
            return entry(chunk)[0], chunk
        finally:
            os.close(table)

    @property
    def kinds(self) -> dict[str, str]:
        """The fields' kinds by name, as they are written when packing."""
        return {f.name: f.text for f in self.fields}

    def choose(self, names: tuple[str, ...] | None) -> tuple[Field, ...]:
        """Return the fields with these names, in this order; all if None.

        Raises:
            ValueError: There is no such field.
        """
        if names is None:
            return self.fields
        known = {f.name: f for f in self.fields}
        for name in names:
            if name not in known:
                raise ValueError(f"fields: no field {name!r} in {self.path}; it has {', '.join(map(repr, known))}")
        return tuple(known[name] for name in names)


def local_path(path: str | os.PathLike[str]) -> str:
    """Return the absolute path of a folder; other schemes than a local path are refused."""
    text = path_text("path", path)
    scheme, found, _ = text.partition("://")
    if found and scheme == "file":
        return os.path.abspath(text.removeprefix("file://"))
    if found and scheme.isalnum():
        raise ValueError(f"path={text!r}: {scheme}:// is not supported; copy the data set to a local or mounted folder")
    return os.path.abspath(text)


def _field(entry: dict[str, Any]) -> Field:
    shape = entry.get("shape")
    return Field(
        name=entry["name"],
        kind=entry["kind"],
        dtype=entry.get("dtype") or "",
        shape=None if shape is None else tuple(int(n) for n in shape),
        nullable=bool(entry.get("nullable", False)),
    )


def _nothing_there(folder: str) -> str:
    if not os.path.exists(folder):
        return f"{folder}: no such data set"
    if not os.path.isdir(folder):
        return f"{folder} is a file; a Redox data set is a folder with a {MANIFEST}"
    if os.path.exists(os.path.join(folder, JOURNAL)):
        return f"{folder} is only half packed: run the same redox pack again to finish it"
    if os.path.isdir(os.path.join(folder, SHARDS)):
        return (
            f"{folder} has shards but no {MANIFEST}: if it was whole once, redox verify --repair {folder} rebuilds "
            "what is lost"
        )
    names = sorted(os.listdir(folder))
    shown = ", ".join(names[:5]) + (", …" if len(names) > 5 else "") if names else "nothing"
    return f"{folder} is not a Redox data set: it has no {MANIFEST} (it has {shown}). Pack one with: redox pack SRC DST"
