"""The C library, and nothing else: the only module with ctypes.

One Python function for each function of `include/redox.h`, with the prefix left out. Each turns a failed status into
the exception of `redox.errors` that stands for it, with its attributes. Handles are plain integers, as in C.

- The library is loaded by the first call of a process, never by an import, so that processes which only fork workers
  or only ask for a data set's facts don't start a Go runtime.
- A Go runtime does not survive a fork: in a child of a process that had loaded the library every call raises
  `ForkError` instead of hanging.
- ctypes releases the interpreter lock during a call. Calls that may wait do so in slices of at most `SLICE_S`, so
  that Ctrl-C is noticed; `redox.errors.StallError` comes when the whole time is over.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import sys
import threading
import time
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redox import errors

if TYPE_CHECKING:
    from collections.abc import Sequence

ABI_VERSION = 1
ABSENT = -(1 << 63)  # REDOX_ABSENT
SLICE_S = 0.1

OK, END_OF_EPOCH, EINVAL, EBADF, ERANGE = 0, 1, -1, -2, -3
EIO, ETIMEDOUT, ECANCELED, EFORK = -7, -11, -12, -13
BATCH_SKIPPED = 1  # REDOX_BATCH_SKIPPED

_ERRORS: dict[int, type[Exception]] = {
    EINVAL: ValueError,
    EBADF: errors.ClosedError,
    ERANGE: errors.EngineError,  # callers that can make room never see it
    -4: errors.NotADatasetError,
    -5: errors.FormatError,
    -6: errors.CorruptError,
    EIO: errors.StorageError,
    -8: errors.MemoryLimitError,
    -9: errors.StateError,
    -10: errors.PeerError,
    ETIMEDOUT: errors.StallError,
    ECANCELED: errors.EngineError,
    EFORK: errors.ForkError,
    -14: errors.EngineError,
    -15: errors.EngineError,
}
_ATTRIBUTES = ("path", "errno", "shard", "chunk", "sample", "needed", "given", "window", "peer")


class Field(ctypes.Structure):
    """redox_field: one column of a batch."""

    _fields_ = (
        ("data", c_void_p),
        ("cap", c_uint64),
        ("need", c_uint64),
        ("offsets", c_void_p),
        ("shape", c_void_p),
        ("ndim", c_uint32),
        ("shape_cap", c_uint32),
        ("valid", c_void_p),
        ("reserved", c_uint64 * 2),
    )


class Batch(ctypes.Structure):
    """redox_batch."""

    _fields_ = (
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("n_fields", c_uint32),
        ("cap_samples", c_uint32),
        ("n_samples", c_uint32),
        ("reserved", c_uint32),
        ("epoch", c_uint64),
        ("step", c_uint64),
        ("index", c_void_p),
        ("fields", POINTER(Field)),
    )


class _Value(ctypes.Structure):
    """redox_field as redox_writer_write reads it. A c_char_p takes bytes without a copy, and keeps them alive."""

    _fields_ = (
        ("data", c_char_p),
        ("cap", c_uint64),
        ("need", c_uint64),
        ("offsets", c_void_p),
        ("shape", c_void_p),
        ("ndim", c_uint32),
        ("shape_cap", c_uint32),
        ("valid", c_void_p),
        ("reserved", c_uint64 * 2),
    )


_TEXT = (c_void_p, c_size_t, POINTER(c_size_t))  # buf, cap, need
_I64, _U64, _VALUES = POINTER(c_int64), POINTER(c_uint64), POINTER(_Value)
_SIGNATURES: dict[str, tuple[Any, ...]] = {  # all return redox_status
    "redox_open": (c_char_p, c_char_p, c_uint32, _U64),
    "redox_info": (c_uint64, *_TEXT),
    "redox_read": (c_uint64, _I64, c_size_t, POINTER(Batch)),
    "redox_origin": (c_uint64, _I64, c_size_t, _I64, *_TEXT),
    "redox_find_key": (c_uint64, c_char_p, _I64),
    "redox_plan_indices": (c_uint64, c_char_p, c_uint64, _I64, c_size_t, POINTER(c_size_t)),
    "redox_simulate": (c_uint64, c_char_p, *_TEXT),
    "redox_subset_new": (c_uint64, _I64, c_size_t, _U64),
    "redox_subset_close": (c_uint64,),
    "redox_close": (c_uint64,),
    "redox_loader_new": (c_uint64, c_char_p, _U64),
    "redox_next_batch": (c_uint64, POINTER(Batch), c_int64),
    "redox_acquire": (c_uint64, POINTER(Batch), c_int64, _U64),
    "redox_release": (c_uint64,),
    "redox_set_epoch": (c_uint64, c_uint64),
    "redox_state": (c_uint64, *_TEXT),
    "redox_restore": (c_uint64, c_char_p),
    "redox_stats": (c_uint64, *_TEXT),
    "redox_cancel": (c_uint64,),
    "redox_loader_close": (c_uint64,),
    "redox_writer_new": (c_char_p, c_char_p, _U64),
    "redox_writer_write": (c_uint64, _VALUES, c_uint32),
    "redox_writer_write_from": (c_uint64, _VALUES, c_uint32, c_uint64, c_char_p),
    "redox_writer_resumed": (c_uint64, _U64),
    "redox_writer_commit": (c_uint64,),
    "redox_writer_abort": (c_uint64,),
    "redox_job_new": (c_char_p, c_char_p, _U64),
    "redox_job_wait": (c_uint64, c_int64, *_TEXT),
    "redox_job_cancel": (c_uint64,),
    "redox_job_close": (c_uint64,),
    "redox_log_read": _TEXT,
}

_log = logging.getLogger("redox")
_lock = threading.Lock()
_library: Any = None
_pid = 0  # of the process that loaded it; 0: none yet
_log_read_at = 0.0


# ---- the library -------------------------------------------------------------------------------------------------


def library_path() -> Path:
    """Return where the C library of this package lies."""
    return Path(__file__).with_name("libredox.so.0")


def load() -> Any:
    """Return the C library, loaded by the first call in this process.

    Raises:
        ForkError: It had been loaded before this process was forked.
        ImportError: It is not there, or older than its sources.
    """
    if _pid == os.getpid():
        return _library
    if _pid:
        raise errors.ForkError(
            f"the Redox library was loaded in process {_pid} and can't be used in its forked child {os.getpid()}: "
            'open data sets in the child before the parent does, or start it with "spawn" or "forkserver"'
        )
    with _lock:
        return _library if _pid else _load()


def _load() -> Any:
    global _library, _pid  # noqa: PLW0603 - one library a process
    path = library_path()
    _refuse_stale(path)
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise ImportError(f"the Redox library can't be loaded: {error}", path=str(path)) from None
    library.redox_version.restype = c_char_p
    library.redox_abi_version.restype = c_uint32
    library.redox_strerror.argtypes, library.redox_strerror.restype = (c_int,), c_char_p
    for name in ("redox_last_error", "redox_last_error_json"):
        function = getattr(library, name)
        function.argtypes, function.restype = (c_void_p, c_size_t), c_size_t
    for name, arguments in _SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, c_int
    if library.redox_abi_version() != ABI_VERSION:
        raise ImportError(f"{path} speaks ABI {library.redox_abi_version()}, this package {ABI_VERSION}", path=str(path))
    _start_log()
    _library, _pid = library, os.getpid()
    return library


def _refuse_stale(path: Path) -> None:
    """In a source tree (an editable install), refuse a library that is missing or older than its sources."""
    root = path.parent.parent.parent
    if not (root / "go.mod").is_file() or not (root / "capi").is_dir():
        return
    if not path.is_file():
        raise ImportError(f"{path} is not built yet: run make build in {root}", path=str(path))
    built = path.stat().st_mtime
    for folder in ("golib", "capi", "include"):
        for source in (root / folder).rglob("*"):
            generated = source.name == "libredox.h"
            tested = source.name.endswith("_test.go")
            if source.suffix in (".go", ".c", ".h") and not generated and not tested and source.stat().st_mtime > built:
                raise ImportError(f"{path} is older than {source}: run make build in {root}", path=str(path))


def version() -> str:
    """Return the library's version."""
    return str(load().redox_version().decode())


# ---- statuses, text, log -----------------------------------------------------------------------------------------


def failure(status: int) -> Exception:
    """Return the exception for a failed call: this thread's last failure, in words and with attributes."""
    library = load()
    size = library.redox_last_error_json(None, 0)
    buffer = ctypes.create_string_buffer(max(1, size))
    library.redox_last_error_json(buffer, len(buffer))
    try:
        report = json.loads(buffer.value or b"{}")
    except ValueError:
        report = {}
    if report.get("status", status) != status:
        report = {}  # an older failure: this call left no words
    message = report.get("message") or library.redox_strerror(status).decode()
    kind = _ERRORS.get(status, errors.EngineError)
    if not issubclass(kind, errors.Error):
        return kind(message)
    return kind(message, **{name: report[name] for name in _ATTRIBUTES if report.get(name) is not None})


def check(status: int) -> None:
    """Raise the exception that a status stands for, if it is a failure."""
    if status < 0:
        poll_log()
        raise failure(status)


def _text(call: str, *arguments: Any) -> bytes:
    """Return the text of a call whose last arguments are (buf, cap, need)."""
    function = getattr(load(), call)
    need = c_size_t(4096)
    while True:
        buffer = ctypes.create_string_buffer(need.value)
        status = function(*arguments, buffer, len(buffer), byref(need))
        if status != ERANGE or need.value <= len(buffer):
            check(status)
            return buffer.raw[: max(0, need.value - 1)]


def _json(call: str, *arguments: Any) -> dict[str, Any]:
    return dict(json.loads(_text(call, *arguments)))


def encode(options: dict[str, Any]) -> bytes:
    """Return options as the JSON that the library takes."""
    return json.dumps(options, ensure_ascii=False, separators=(",", ":")).encode()


def _start_log() -> None:
    """Let REDOX_LOG=debug be seen in programs that set up no logging of their own."""
    level = os.environ.get("REDOX_LOG", "").upper()
    if level in ("DEBUG", "INFO", "WARNING", "ERROR"):
        _log.setLevel(level)
        if not logging.getLogger().handlers and not _log.handlers:
            handler = logging.StreamHandler(sys.stderr)
            handler.setFormatter(logging.Formatter("redox %(levelname)s %(message)s"))
            _log.addHandler(handler)


def poll_log(every_s: float = 0.0) -> None:
    """Hand the library's log lines to the `redox` logger, unless that was done less than `every_s` seconds ago."""
    global _log_read_at  # noqa: PLW0603 - a clock for the whole process
    now = time.monotonic()
    if now - _log_read_at < every_s:
        return
    _log_read_at = now
    buffer = ctypes.create_string_buffer(64 << 10)
    need = c_size_t()
    while load().redox_log_read(buffer, len(buffer), byref(need)) == OK and need.value > 1:
        for line in buffer.raw[: need.value - 1].splitlines():
            entry = json.loads(line)
            level = getattr(logging, str(entry.get("level", "info")).upper().replace("WARN", "WARNING"), logging.INFO)
            _log.log(level if isinstance(level, int) else logging.INFO, "%s", entry.get("message", ""))


def numbers_of(values: Sequence[int]) -> Any:
    """Return stored numbers as a C array of int64."""
    return (c_int64 * len(values))(*values)


# ---- data sets ---------------------------------------------------------------------------------------------------


def dataset_open(path: str, options: dict[str, Any] | None = None) -> int:
    """redox_open."""
    handle = c_uint64()
    check(load().redox_open(os.fsencode(path), encode(options or {}), ABI_VERSION, byref(handle)))
    return handle.value


def dataset_info(dataset: int) -> dict[str, Any]:
    """redox_info."""
    return _json("redox_info", dataset)


def read(dataset: int, numbers: Any, batch: Batch) -> int:
    """redox_read of a C array of stored numbers; returns OK or ERANGE."""
    status: int = load().redox_read(dataset, numbers, len(numbers), byref(batch))
    if status != ERANGE:
        check(status)
    return status


def origin(dataset: int, numbers: Sequence[int]) -> tuple[list[int], list[str]]:
    """redox_origin: source numbers and keys."""
    sources = (c_int64 * len(numbers))()
    keys = _text("redox_origin", dataset, numbers_of(numbers), len(numbers), sources)
    return list(sources), [key.decode() for key in keys.split(b"\0")[: len(numbers)]]


def sources(dataset: int, numbers: Sequence[int]) -> list[int]:
    """redox_origin without keys."""
    found = (c_int64 * len(numbers))()
    check(load().redox_origin(dataset, numbers_of(numbers), len(numbers), found, None, 0, None))
    return list(found)


def find_key(dataset: int, key: str) -> int:
    """redox_find_key. Raises ValueError when there is none."""
    number = c_int64()
    check(load().redox_find_key(dataset, key.encode(), byref(number)))
    return number.value


def plan_indices(dataset: int, options: dict[str, Any], step: int, count: int) -> list[int]:
    """redox_plan_indices of `count` = world_size x batch_size entries."""
    found = (c_int64 * count)()
    need = c_size_t()
    check(load().redox_plan_indices(dataset, encode(options), step, found, count, byref(need)))
    return list(found)


def simulate(dataset: int, options: dict[str, Any]) -> dict[str, Any]:
    """redox_simulate."""
    return _json("redox_simulate", dataset, encode(options))


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


def next_batch(loader: int, batch: Batch, timeout_s: float) -> int:
    """redox_next_batch: waits in slices; returns OK, END_OF_EPOCH or ERANGE."""
    return _wait(load().redox_next_batch, timeout_s, loader, byref(batch))


def acquire(loader: int, batch: Batch, timeout_s: float) -> tuple[int, int]:
    """redox_acquire: waits in slices; returns the status (OK, END_OF_EPOCH or ERANGE) and the slot."""
    slot = c_uint64()
    function = load().redox_acquire
    try:
        return _wait(lambda loader, batch, ms: function(loader, batch, ms, byref(slot)), timeout_s, loader, byref(batch)), slot.value
    except BaseException:
        if slot.value:  # Ctrl-C arrived together with the batch
            function = load().redox_release
            function(slot)
        raise


def _wait(function: Any, timeout_s: float, *arguments: Any) -> int:
    deadline = time.monotonic() + timeout_s
    while True:
        left = deadline - time.monotonic()
        status: int = function(*arguments, max(0, int(min(left, SLICE_S) * 1000)))
        if status == ETIMEDOUT and left > SLICE_S:
            poll_log()
            continue
        if status not in (OK, END_OF_EPOCH, ERANGE):
            check(status)
        poll_log(every_s=SLICE_S)
        return status


def release(slot: int, pid: int) -> None:
    """redox_release, for finalisers: silent in a forked child, where the slot belongs to the parent."""
    if pid == _pid == os.getpid():
        _library.redox_release(slot)


def set_epoch(loader: int, epoch: int) -> None:
    """redox_set_epoch."""
    check(load().redox_set_epoch(loader, epoch))


def state(loader: int) -> dict[str, Any]:
    """redox_state."""
    return _json("redox_state", loader)


def restore(loader: int, state: dict[str, Any]) -> None:
    """redox_restore."""
    check(load().redox_restore(loader, encode(state)))


def stats(loader: int) -> dict[str, Any]:
    """redox_stats."""
    return _json("redox_stats", loader)


def cancel(loader: int) -> None:
    """redox_cancel."""
    check(load().redox_cancel(loader))


def loader_close(loader: int, pid: int = 0) -> None:
    """redox_loader_close; with the pid of its owner, silent in a forked child, for finalisers."""
    if pid == 0:
        check(load().redox_loader_close(loader))
    elif pid == _pid == os.getpid():
        _library.redox_loader_close(loader)


# ---- writing -----------------------------------------------------------------------------------------------------


class Record:
    """The arguments of one writer's redox_writer_write_from, made once. One thread at a time."""

    def __init__(self, fields: int) -> None:
        self._array = (_Value * fields)()
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
        keep = []
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
            name = None if key is None else key.encode()
            check(library.redox_writer_write_from(writer, self._array, len(self._values), source, name))


_ZERO = c_uint8(0)


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
    check(load().redox_writer_new(os.fsencode(dst), encode(options), byref(handle)))
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
