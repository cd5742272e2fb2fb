"""`redox.Writer`: a data set written sample by sample."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from . import identity
from .encode import Encoder
from .errors import ClosedError
from .info import Info
from .paths import path_text
from .schema import FieldsOption, check, given, infer
from .settings import WriteOptions, is_int
from .sink import MANIFEST, Sink


class Writer:
    """Writes a data set.

    Nothing opens as a data set before the `with` block has ended well; an exception inside it, Ctrl-C too, leaves
    nothing behind.

        >>> with redox.Writer("train.redox", fields={"image": "jpeg", "label": "int"}) as w:   # doctest: +SKIP
        ...     w.write({"image": data, "label": 3})

    One thread at a time.

    Args:
        dst: where the data set goes: a folder that is not there, is empty, or is ours.
        fields: kinds by field name (a list for tuples, one kind for single values); recognised from the first sample
            if None.
        classes: names of the classes, for `Dataset.classes`.
        shuffle, seed, codec, chunk_size, shard_size, workers, overwrite: as in `redox.pack`.
        resume: keep what was written when the block fails, and go on with what an earlier writer with the same options
            kept: its first `resumed` samples are there and must not be written again.

    Attributes:
        info: what is in the data set, once it is complete; None before.

    Raises:
        ValueError: a wrong option.
        FileExistsError: `dst` holds something else, or a data set and not `overwrite`.
        StorageError: a full disk.
    """

    def __init__(
        self,
        dst: str | os.PathLike[str],
        *,
        fields: FieldsOption = None,
        classes: list[str] | None = None,
        shuffle: bool = True,
        seed: int = 0,
        codec: str = "auto",
        chunk_size: int | str = "auto",
        shard_size: int | str = "256mb",
        workers: int | None = None,
        overwrite: bool = False,
        resume: bool = False,
    ) -> None:
        self.info: Info | None = None
        self._closed = False
        self._parts: tuple[Sink, Encoder] | None = None
        self._dst = path_text("dst", dst)
        self._options = WriteOptions(
            shuffle=shuffle,
            seed=seed,
            codec=codec,
            chunk_size=chunk_size,
            shard_size=shard_size,
            workers=workers,
            overwrite=overwrite,
            resume=resume,
        )
        check(fields)
        self._fields = fields
        self._classes = None if classes is None else [str(name) for name in classes]
        self._number = 0
        # The fields may only be known with the first sample, but nobody should compute for hours before this is said.
        if not overwrite and os.path.exists(os.path.join(self._dst, MANIFEST)):
            raise FileExistsError(f"{self._dst} holds a data set; pass overwrite=True to replace it, or another dst")
        if isinstance(fields, Mapping) and resume:
            self._open(dict.fromkeys(fields))

    @property
    def resumed(self) -> int:
        """With `resume`: how many samples are there already. Needs `fields` of dict samples, or a first `write`."""
        return self._parts[0].resumed if self._parts is not None else 0

    def write(self, sample: Any, *, key: str | None = None, source: int | None = None) -> None:
        """Adds one sample; its data is copied.

        Args:
            sample: a dict, a tuple, or a single value, like the first.
            key: found again by `Dataset.key` and `redox cat --key`; its number if None.
            source: its place in where it comes from; the number of samples written before it if None.

        Raises:
            TypeError: a value fits no kind, or another than its field's.
        """
        if self._closed:
            raise ClosedError(f"the writer of {self._dst} is closed")
        if key is not None and not isinstance(key, str):
            raise TypeError(f"key={key!r}: expected a string")
        if source is not None and (not is_int(source) or source < 0):
            raise TypeError(f"source={source!r}: expected a number from 0")
        sink, encoder = self._parts or self._open(sample)
        sink.write(encoder(sample, self._number), self._number if source is None else source, key)
        self._number += 1

    def _open(self, sample: Any) -> tuple[Sink, Encoder]:
        schema = infer([(0, sample)]) if self._fields is None else given(sample, self._fields)
        encoder = Encoder(schema)
        about = {**self._options.content(), "fields": [f.text for f in schema.fields], "names": schema.names}
        source = identity.fingerprint(["redox.Writer"], about)
        sink = Sink(self._dst, schema, self._options, source, self._classes)
        self._parts = sink, encoder
        self._number = sink.resumed
        return self._parts

    def close(self) -> None:
        """Publishes the data set; closing twice is allowed.

        Raises:
            ValueError: no sample was written.
        """
        if self._closed:
            return
        self._closed = True
        if self._parts is None or not self._number:
            self._discard()
            raise ValueError(f"no sample was written to {self._dst}; a data set has at least one")
        try:
            self._parts[0].commit()
        finally:
            self._discard()
        self.info = Info.of(self._dst)

    def abort(self) -> None:
        """Ends without a data set. Nothing happens after `close`."""
        self._closed = True
        self._discard()

    def _discard(self) -> None:
        if self._parts is not None:
            self._parts[0].abort()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc_info: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self.abort()
