"""The functions of the C library.

One Python function for each function of `include/redox.h`, with the prefix left out. Each turns a failed status into
the exception of `redox.errors` that stands for it, with its attributes. Handles are plain integers, as in C.

ctypes releases the interpreter lock during a call. Calls that may wait do so in slices of at most `SLICE_S`, so that
Ctrl-C is noticed; `redox.errors.StallError` comes when the whole time is over. One file, since the header is one, too.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import time
import weakref
from ctypes import byref, c_int64, c_size_t, c_uint8, c_uint64
from typing import TYPE_CHECKING, Any

from redox._library import (
    ABI_VERSION,
    BATCH_SKIPPED,
    END_OF_EPOCH,
    ERANGE,
    ETIMEDOUT,
    OK,
    Batch,
    Field,
    Value,
    check,
    encode,
    library_path,
    load,
    owns,
    parsed,
    poll_log,
    text,
    version,
)
from redox.errors import CorruptError
from redox.paths import path_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "ABSENT",
    "BATCH_SKIPPED",
    "END_OF_EPOCH",
    "ERANGE",
    "OK",
    "Batch",
    "Field",
    "library_path",
    "load",
    "owns",
    "version",
]

ABSENT = -(1 << 63)  # REDOX_ABSENT
SLICE_S = 0.1


def numbers_of(values: Sequence[int]) -> Any:
    """Return stored numbers as a C array of int64."""
    return (c_int64 * len(values))(*values)


# ---- data sets ---------------------------------------------------------------------------------------------------


def dataset_open(path: str, options: dict[str, Any] | None = None) -> int:
    """redox_open."""
    handle = c_uint64()
    check(load().redox_open(os.fsencode(path_text("path", path)), encode(options or {}), ABI_VERSION, byref(handle)))
    return handle.value


def dataset_info(dataset: int) -> dict[str, Any]:
    """redox_info."""
    return parsed("redox_info", dataset)


def read(dataset: int, numbers: Any, batch: Batch) -> int:
    """redox_read of a C array of stored numbers; returns OK or ERANGE."""
    status: int = load().redox_read(dataset, numbers, len(numbers), byref(batch))
    if status != ERANGE:
        check(status)
    return status


def read_stats(dataset: int) -> dict[str, Any]:
    """redox_read_stats."""
    return parsed("redox_read_stats", dataset)


def origin(dataset: int, numbers: Sequence[int]) -> tuple[list[int], list[str]]:
    """redox_origin: source numbers and keys."""
    found = (c_int64 * len(numbers))()
    keys = text("redox_origin", dataset, numbers_of(numbers), len(numbers), found)
    return list(found), [_key(key, number) for key, number in zip(keys.split(b"\0"), numbers, strict=False)]


def _key(key: bytes, number: int) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError as error:  # names of files may be anything
        raise CorruptError(f"the key of sample {number} is not UTF-8: {key!r}", sample=number) from error


def sources(dataset: int, numbers: Sequence[int]) -> list[int]:
    """redox_origin without keys."""
    found = (c_int64 * len(numbers))()
    check(load().redox_origin(dataset, numbers_of(numbers), len(numbers), found, None, 0, byref(c_size_t())))
    return list(found)


def find_key(dataset: int, key: str) -> int:
    """redox_find_key. Raises ValueError when there is none."""
    number = c_int64()
    check(load().redox_find_key(dataset, _encoded(key), byref(number)))
    return number.value


def plan_indices(dataset: int, options: dict[str, Any], step: int, count: int) -> list[int]:
    """redox_plan_indices of `count` = world_size x batch_size entries."""
    found = (c_int64 * count)()
    need = c_size_t()
    check(load().redox_plan_indices(dataset, encode(options), step, found, count, byref(need)))
    return list(found)


def simulate(dataset: int, options: dict[str, Any]) -> dict[str, Any]:
    """redox_simulate."""
    return parsed("redox_simulate", dataset, encode(options))


def subset_new(dataset: int, numbers: Any) -> int:
    """redox_subset_new of a C array of stored numbers in ascending order."""
    handle = c_uint64()
    check(load().redox_subset_new(dataset, numbers, len(numbers), byref(handle)))
    return handle.value


def subset_close(subset: int) -> None:
    """redox_subset_close."""
    check(load().redox_subset_close(subset))


def dataset_close(dataset: int) -> None:
    """redox_close."""
    check(load().redox_close(dataset))


# ---- loading -----------------------------------------------------------------------------------------------------


def loader_new(dataset: int, options: dict[str, Any]) -> int:
    """redox_loader_new."""
    handle = c_uint64()
    check(load().redox_loader_new(dataset, encode(options), byref(handle)))
    poll_log()
    return handle.value


def next_parts(loader: int, batch: Batch, parts: Any, timeout_s: float) -> int:
    """redox_next_parts: waits in slices; returns OK, END_OF_EPOCH or ERANGE."""
    function = load().redox_next_parts
    return _wait(lambda ms: function(loader, byref(batch), parts, ms), timeout_s)


def acquire(loader: int, batch: Batch, timeout_s: float, slot: c_uint64) -> int:
    """redox_acquire: waits in slices; returns OK, END_OF_EPOCH or ERANGE.

    The caller keeps `slot`: when Ctrl-C arrives together with a batch, it still says which one.
    """
    function = load().redox_acquire
    return _wait(lambda ms: function(loader, byref(batch), ms, byref(slot)), timeout_s)


def _wait(call: Callable[[int], int], timeout_s: float) -> int:
    deadline = time.monotonic() + timeout_s
    while True:
        left = deadline - time.monotonic()
        status = call(max(0, int(min(left, SLICE_S) * 1000)))
        if status == ETIMEDOUT and left > SLICE_S:
            poll_log()
            continue
        if status not in (OK, END_OF_EPOCH, ERANGE):
            check(status)
        poll_log(every_s=0.0 if status == END_OF_EPOCH else SLICE_S)
        return status


def release(slot: int) -> None:
    """redox_release."""
    check(load().redox_release(slot))


_lent: dict[weakref.ref[Any], c_uint64] = {}


class _SlotOf:
    """An argument of redox_release that is a weak reference: ctypes converts it by this look-up."""

    from_param = _lent.pop


@functools.cache
def _releaser() -> Any:
    function = load()["redox_release"]  # another function object than load().redox_release
    function.argtypes, function.restype = (_SlotOf,), None
    return function


def release_when_gone(lease: object, slot: int) -> None:
    """Call redox_release when `lease` is gone.

    Nothing of it is Python code: the weak reference calls the C function, whose argument `dict.pop` finds. A finaliser
    in Python would swallow a Ctrl-C that arrives during it, or be cut short by one and keep the slot for ever. In a
    forked child the library itself refuses the call.
    """
    _lent[weakref.ref(lease, _releaser())] = c_uint64(slot)


def set_epoch(loader: int, epoch: int) -> None:
    """redox_set_epoch."""
    check(load().redox_set_epoch(loader, epoch))


def state(loader: int) -> dict[str, Any]:
    """redox_state."""
    return parsed("redox_state", loader)


def restore(loader: int, state: dict[str, Any]) -> None:
    """redox_restore."""
    check(load().redox_restore(loader, encode(state)))


def stats(loader: int) -> dict[str, Any]:
    """redox_stats."""
    return parsed("redox_stats", loader)


def cancel(loader: int) -> None:
    """redox_cancel."""
    check(load().redox_cancel(loader))


def loader_rest(loader: int, timeout_s: float) -> bool:
    """redox_loader_rest: waits in slices; returns whether all was sent."""
    deadline = time.monotonic() + timeout_s
    while load().redox_loader_rest(loader, int(SLICE_S * 1000)) == ETIMEDOUT:
        if time.monotonic() > deadline:
            return False
    return True


def loader_close(loader: int, pid: int = 0) -> None:
    """redox_loader_close; with the pid of its owner, silent in a forked child, for finalisers."""
    if pid == 0:
        check(load().redox_loader_close(loader))
    elif owns(pid):
        load().redox_loader_close(loader)


# ---- several nodes -----------------------------------------------------------------------------------------------


def mesh_new(dataset: int, options: dict[str, Any]) -> int:
    """redox_mesh_new."""
    handle = c_uint64()
    check(load().redox_mesh_new(dataset, encode(options), byref(handle)))
    return handle.value


def mesh_card(mesh: int) -> bytes:
    """redox_mesh_card."""
    return text("redox_mesh_card", mesh).rstrip(b"\0")


def mesh_meet(mesh: int, cards: bytes, timeout_s: float) -> None:
    """redox_mesh_meet: waits in slices."""
    function = load().redox_mesh_meet
    deadline = time.monotonic() + timeout_s
    while True:
        left = max(0.0, deadline - time.monotonic())
        status = function(mesh, cards or None, int(min(left, SLICE_S) * 1000))
        poll_log()
        if status != ETIMEDOUT or left <= SLICE_S:
            check(status)
            return


def mesh_close(mesh: int, pid: int) -> None:
    """redox_mesh_close, silent in a forked child of the process `pid`, for finalisers."""
    if owns(pid):
        load().redox_mesh_close(mesh)


# ---- writing -----------------------------------------------------------------------------------------------------


class Record:
    """The arguments of one writer's redox_writer_write_from, made once. One thread at a time."""

    def __init__(self, fields: int) -> None:
        self._array = (Value * fields)()
        self._values = [self._array[i] for i in range(fields)]
        self._missing = ctypes.addressof(_ZERO)

    def write(
        self, writer: int, values: Sequence[Any], shapes: Sequence[Any], source: int | None, key: str | None
    ) -> None:
        """Write one sample.

        Args:
            writer: The handle.
            values: For each field its bytes (`bytes`, or a contiguous C buffer), or None where it is missing.
            shapes: For each field its dimensions if it is an array of any shape, else None.
            source: The sample's number in its source; None: the next one.
            key: The sample's key; None: its number.
        """
        keep: list[Any] = []
        for field, value, shape in zip(self._values, values, shapes, strict=True):
            field.valid = self._missing if value is None else None
            if value is None:
                field.data, field.cap, field.ndim, field.shape = None, 0, 0, None
                continue
            if isinstance(value, bytes):
                field.data, field.cap = value, len(value)
            else:
                view = memoryview(value).cast("B")
                field.data, field.cap = _address(view, keep), view.nbytes
            if shape is None:
                field.ndim, field.shape = 0, None
            else:
                dimensions = (c_uint64 * max(1, len(shape)))(*shape)
                keep.append(dimensions)
                field.ndim, field.shape = len(shape), ctypes.addressof(dimensions)
        library = load()
        if source is None:
            check(library.redox_writer_write(writer, self._array, len(self._values)))
        else:
            name = None if key is None else _encoded(key)
            check(library.redox_writer_write_from(writer, self._array, len(self._values), source, name))


_ZERO = c_uint8(0)


def _encoded(key: str) -> bytes:
    if "\0" in key:
        raise ValueError(f"key={key!r}: expected a string without a NUL")  # C would end it there
    return key.encode()


def _address(view: memoryview, keep: list[Any]) -> Any:
    """Return a buffer's address, and keep alive what it belongs to."""
    if view.nbytes == 0:
        return None
    if view.readonly:
        copy = bytes(view)
        return copy
    owner = (ctypes.c_char * view.nbytes).from_buffer(view)
    keep.append(owner)
    return ctypes.addressof(owner)


def writer_new(dst: str, options: dict[str, Any]) -> int:
    """redox_writer_new."""
    handle = c_uint64()
    check(load().redox_writer_new(os.fsencode(path_text("dst", dst)), encode(options), byref(handle)))
    return handle.value


def writer_resumed(writer: int) -> int:
    """redox_writer_resumed."""
    samples = c_uint64()
    check(load().redox_writer_resumed(writer, byref(samples)))
    return samples.value


def writer_commit(writer: int) -> None:
    """redox_writer_commit."""
    check(load().redox_writer_commit(writer))
    poll_log()


def writer_abort(writer: int) -> None:
    """redox_writer_abort."""
    check(load().redox_writer_abort(writer))


# ---- long work ---------------------------------------------------------------------------------------------------


def job_new(kind: str, options: dict[str, Any]) -> int:
    """redox_job_new."""
    handle = c_uint64()
    check(load().redox_job_new(kind.encode(), encode(options), byref(handle)))
    return handle.value


def job_wait(job: int, timeout_s: float = SLICE_S) -> tuple[bool, dict[str, Any]]:
    """redox_job_wait: whether it is done, and its result or, while it runs, its progress."""
    need = c_size_t(4096)
    while True:
        buffer = ctypes.create_string_buffer(need.value)
        wait_ms = int(min(timeout_s, SLICE_S) * 1000)
        status = load().redox_job_wait(job, wait_ms, buffer, len(buffer), byref(need))
        if status != ERANGE:
            break
    if status != ETIMEDOUT:
        check(status)
    poll_log(every_s=SLICE_S)
    return status == OK, json.loads(buffer.value or b"{}")


def job_cancel(job: int) -> None:
    """redox_job_cancel."""
    check(load().redox_job_cancel(job))


def job_close(job: int) -> None:
    """redox_job_close."""
    check(load().redox_job_close(job))


# ---- engine processes --------------------------------------------------------------------------------------------


def engine_serve(socket: int, options: dict[str, Any]) -> None:
    """redox_engine_serve: returns when the engine's life is over."""
    check(load().redox_engine_serve(socket, encode(options)))
