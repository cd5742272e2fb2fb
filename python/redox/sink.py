"""Where encoded samples go: one native writer.

For `packing` and `writer`. Everything that may take long is done so that Ctrl-C comes through within a fraction of a
second.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable
from typing import Any

from . import _native
from .encode import Record
from .errors import Error, StorageError
from .schema import Schema
from .settings import WriteOptions

MANIFEST = "manifest.json"
_PATIENCE_S = 0.8
WORK = ".redox-pack"  # beside the manifest, while a data set is being packed
SOURCE = "source"  # in a manifest's meta: the identity of source and options


class Sink:
    """Takes records; at the end there is a data set, or none.

    Args:
        dst: the data set's path.
        schema: its fields.
        options: how it is written.
        source: identity of source and options, for resuming; "" if there is none.
        classes: class names, if the source has them.
    """

    def __init__(self, dst: str, schema: Schema, options: WriteOptions, source: str, classes: list[str] | None) -> None:
        native = options.native()
        native["fields"] = [{"name": f.name, "kind": f.text} for f in schema.fields]
        native["layout"] = schema.layout
        if source:
            native["source_hash"] = source
            native["meta"] = {SOURCE: source}
        if classes is not None:
            native["classes"] = classes
        self._dst, self._options = dst, native
        self._writer = _native.writer_new(dst, native)
        self._record = _native.Record(len(schema.fields))

    @property
    def resumed(self) -> int:
        """How many source samples an interrupted earlier run has safely taken."""
        return _native.writer_resumed(self._writer)

    def write(self, record: Record, number: int | None, key: str | None) -> None:
        """Takes one record; waits while the core is behind."""
        self._record.write(self._writer, record.values, record.shapes, number, key)

    def commit(self) -> None:
        """Publishes the data set: shuffles what was spilled, writes, syncs, renames."""
        try:
            interruptible(lambda: _native.writer_commit(self._writer), self.abort)
        except KeyboardInterrupt:
            raise
        except BaseException:
            self._writer = 0
            raise
        self._writer = 0

    def discard(self) -> None:
        """Ends without a data set and without anything for a later run."""
        self.abort()
        native = {**self._options, "overwrite": True, "resume": False}
        _native.writer_abort(_native.writer_new(self._dst, native))

    def abort(self) -> None:
        """Ends without a data set; with `resume` what is safely taken stays for the next run."""
        writer, self._writer = self._writer, 0
        if writer:
            with contextlib.suppress(Error, ValueError):  # closed by its own failure already
                _native.writer_abort(writer)


def interruptible(call: Callable[[], Any], cancel: Callable[[], None]) -> Any:
    """Runs a call of the core that may take long in a thread; on Ctrl-C `cancel` ends it."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append((call(), None))
        except BaseException as error:  # handed to the caller's thread
            outcome.append((None, error))

    thread = threading.Thread(target=run, name="redox-commit", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(_native.SLICE_S)
    except BaseException:
        cancel()
        # Who presses Ctrl-C waits no longer than this. A call that does not heed it goes on meanwhile, and ends with
        # the process, which leaves no more behind than kill -9 does.
        thread.join(_PATIENCE_S)
        raise
    result, error = outcome[0]
    if error is not None:
        raise error
    return result


def existing(dst: str) -> str | None:
    """The identity of the complete data set at `dst` ("" if it has none), or None if there is no data set.

    Read without the library, so that worker processes can still be forked before a Go runtime starts. Whether the data
    set is sound is the core's to say.
    """
    try:
        with open(os.path.join(dst, MANIFEST), encoding="utf-8") as file:
            manifest = json.load(file)
        return str((manifest.get("meta") or {}).get(SOURCE, ""))
    except (FileNotFoundError, NotADirectoryError):  # a file there is for the core to refuse, by its right name
        return None
    except (IsADirectoryError, ValueError, AttributeError):
        return ""
    except OSError as error:
        raise StorageError(f"can't read {dst}: {error.strerror}", path=dst, errno=error.errno) from None
