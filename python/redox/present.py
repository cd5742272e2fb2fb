"""A batch of columns to what the user gets: samples as they were packed, or whole batches; transformed if wanted.

Where Python can fail on a sample (an image that does not decode, a transform that raises `SkipSample`) is here, and so
is `on_error="skip"`: the sample's place is taken by the batch's previous good one, else by the next, so that every
batch keeps its size on every rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from redox import decode
from redox.errors import CorruptError, SkipSample
from redox.options import choice, flag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redox.columns import Columns
    from redox.session import Session
    from redox.values import Maker

__all__ = ["INDEX", "Presenter", "check_with_index"]

INDEX = "__index__"
WithIndex = bool | Literal["stored", "source", "key"]


def check_with_index(value: Any) -> str | None:
    """Return which number or key goes with every sample: "stored", "source", "key" or None."""
    if isinstance(value, str):
        return choice("with_index", value, "stored", "source", "key")
    return "stored" if flag("with_index", value, 'True, False, "stored", "source" or "key"') else None


class Presenter:
    """How one data set's batches are shown.

    Args:
        session: Of the data set, for keys and for counting what is skipped.
        maker: Makes arrays of columns.
        decode_images: Whether encoded images become pictures.
        with_index: "stored", "source", "key" or None.
        transform: Of tuple samples' first value, of dict and scalar samples, or (`batched`) of whole batches.
        target_transform: Of tuple samples' second value.
        batched: Whether whole batches are shown.
    """

    def __init__(
        self,
        session: Session,
        maker: Maker,
        *,
        decode_images: bool,
        with_index: str | None,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        batched: bool = False,
    ) -> None:
        self._session = session
        self.maker = maker
        self._fields = session.fields
        self.layout = session.facts.layout
        if self.layout == "scalar" and len(self._fields) != 1:
            raise ValueError("a data set of single values must have one field")
        self.names = tuple(f.name for f in self._fields) + ((INDEX,) if with_index else ())
        self._decoders = [decode.decoder(f.kind) if decode_images else None for f in self._fields]
        self.with_index = with_index
        self.working = session.crew.working
        self.transform, self.target_transform = transform, target_transform
        self._skip = session.options.on_error == "skip"
        self.plain = not any(self._decoders) and (batched or (transform is None and target_transform is None))

    # -- whole batches -------------------------------------------------------------------------------------------------

    def batch(self, columns: Columns, *, unseen: bool = False) -> Any:
        """Return a whole batch: a tuple, a dict or the one value, of arrays and lists as long as the batch.

        Args:
            columns: The batch.
            unseen: Whether nobody looks at it before it has been pickled. Then nothing is decoded or transformed.
        """
        whole = self.columns(columns, unseen=unseen)
        if self.layout == "dict":
            shown: Any = dict(zip(self.names, whole, strict=True))
        else:
            shown = whole[0] if len(whole) == 1 and self.layout == "scalar" else tuple(whole)
        return shown if self.transform is None else self.transform(shown)

    def columns(self, columns: Columns, *, unseen: bool = False) -> list[Any]:
        """Return the fields of a whole batch, and its index if it goes with the samples; images decoded."""
        if unseen:
            from redox.crossing import Strings

            whole = [Strings(c, list) if Strings.fit(c) else self.maker.whole(c) for c in columns.columns]
        else:
            whole = [self.maker.whole(column) for column in columns.columns]
        if any(self._decoders):
            pictures = self._pictures(columns, whole)
            if any(place != i for i, place in enumerate(pictures)):
                whole = [_chosen(values, pictures) for values in whole]
                columns.index = columns.index[pictures]
        if self.with_index == "stored":
            whole.append(self.maker.array(columns.index, _INDEX_FIELD))
        elif self.with_index == "source":
            import numpy as np

            whole.append(self.maker.array(np.asarray(self.index(columns), np.int64), _INDEX_FIELD))
        elif self.with_index:
            whole.append(self.index(columns))
        return whole

    def _pictures(self, columns: Columns, whole: list[Any]) -> list[int]:
        """Decode image columns in place; return which sample stands in each place."""
        good: dict[int, list[Any]] = {}
        images = [(i, decoder) for i, decoder in enumerate(self._decoders) if decoder is not None]

        def decoded(place: int) -> int:
            good[place] = [self._decode(decoder, whole[i][place], columns, place) for i, decoder in images]
            return place

        order = list(self._stand_in(columns, decoded))
        for column, (i, _) in enumerate(images):
            whole[i] = [good[place][column] if place in good else None for place in range(columns.n)]
        return order

    # -- samples -------------------------------------------------------------------------------------------------------

    def rows(self, columns: Columns) -> list[list[Any]]:
        """Return for each field, and for the index if it goes with the samples, the list of the n values."""
        rows = [self.maker.rows(column) for column in columns.columns]
        if self.with_index:
            rows.append(self.index(columns))
        return rows

    def finished(self, columns: Columns) -> Iterator[Any]:
        """Yield the batch's samples, decoded and transformed."""
        rows = self.rows(columns)

        def finish(place: int) -> Any:
            values = [row[place] for row in rows]
            for i, decoder in enumerate(self._decoders):
                if decoder is not None:
                    values[i] = self._decode(decoder, values[i], columns, place)
            return self._transformed(values)

        return self._stand_in(columns, finish)

    def _transformed(self, values: list[Any]) -> Any:
        if self.layout == "dict":
            sample: Any = dict(zip(self.names, values, strict=True))
            return sample if self.transform is None else self.transform(sample)
        if self.transform is not None:
            values[0] = self.transform(values[0])
        if self.target_transform is not None:
            values[1] = self.target_transform(values[1])
        return values[0] if self.layout == "scalar" and len(values) == 1 else tuple(values)

    def _decode(self, decoder: Any, data: Any, columns: Columns, place: int) -> Any:
        if data is None:
            return None
        try:
            return decoder(data)
        except ImportError:
            raise
        except Exception as error:
            number, facts = int(columns.index[place]), self._session.facts
            shard, chunk = facts.chunk_of(number if number >= 0 else -1 - number)
            message = f"sample {number} of shard {shard}, chunk {chunk} of {facts.path} does not decode: {error}"
            raise CorruptError(message, path=facts.path, shard=shard, chunk=chunk, sample=number) from error

    # -- what goes wrong -----------------------------------------------------------------------------------------------

    def _stand_in(self, columns: Columns, make: Callable[[int], Any]) -> Iterator[Any]:
        """Yield `make(0)` … `make(n-1)`; for those that fail, if that is wanted, the previous good one, else the next.

        Raises:
            CorruptError: No sample of the batch is good, or too many were skipped.
        """
        if not self._skip:
            yield from map(make, range(columns.n))
            return
        waiting, last, any_good = 0, None, False
        for place in range(columns.n):
            try:
                last, any_good = make(place), True
            except (CorruptError, SkipSample) as error:
                self._session.note_skipped(int(columns.index[place]), error)
                if not any_good:
                    waiting += 1
                    continue
            for _ in range(waiting + 1):
                yield last
            waiting = 0
        if waiting:
            raise CorruptError(f"no sample of batch {columns.step} of epoch {columns.epoch} is good")

    # -- index ---------------------------------------------------------------------------------------------------------

    def index(self, columns: Columns) -> list[Any]:
        """Return what goes with each sample: stored numbers, source numbers (both -1 - i for padding) or keys."""
        stored = columns.index.tolist()
        if self.with_index == "stored":
            return list(stored)
        real = [i if i >= 0 else -1 - i for i in stored]
        if self.with_index == "key":
            return self._session.origin(real)[1]
        found = self._session.sources(real)
        return [source if i >= 0 else -1 - source for source, i in zip(found, stored, strict=True)]


def _chosen(values: Any, places: list[int]) -> Any:
    return [values[place] for place in places] if isinstance(values, list) else values[places]


def _index_field() -> Any:
    from redox.schema import Field

    return Field(INDEX, "int")


_INDEX_FIELD = _index_field()
