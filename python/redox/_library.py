"""The C library itself: its types and signatures, loading it, its failures and its log.

`_native.py` has its functions; these two are the only modules with ctypes.

- The library is loaded by the first call of a process, never by an import, so that processes which only fork workers
  or only ask for a data set's facts don't start a Go runtime.
- A Go runtime does not survive a fork: in a child of a process that had loaded the library every call raises
  `ForkError` instead of hanging.
- ctypes releases the interpreter lock during a call. Calls that may wait do so in slices of at most `SLICE_S`, so
  that Ctrl-C is noticed; `redox.errors.StallError` comes when the whole time is over.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import logging
import os
import sys
import threading
import time
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from errno import EEXIST
from pathlib import Path
from typing import Any

from redox import errors
from redox.logs import hand_on

ABI_VERSION = 1

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
    -14: errors.FormatError,  # a data set of a newer format; the library itself is checked when it is loaded
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


class Value(ctypes.Structure):
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
_I64, _U64, _VALUES = POINTER(c_int64), POINTER(c_uint64), POINTER(Value)
_SIGNATURES: dict[str, tuple[Any, ...]] = {  # all return redox_status
    "redox_open": (c_char_p, c_char_p, c_uint32, _U64),
    "redox_info": (c_uint64, *_TEXT),
    "redox_read": (c_uint64, _I64, c_size_t, POINTER(Batch)),
    "redox_read_stats": (c_uint64, *_TEXT),
    "redox_origin": (c_uint64, _I64, c_size_t, _I64, *_TEXT),
    "redox_find_key": (c_uint64, c_char_p, _I64),
    "redox_plan_indices": (c_uint64, c_char_p, c_uint64, _I64, c_size_t, POINTER(c_size_t)),
    "redox_simulate": (c_uint64, c_char_p, *_TEXT),
    "redox_subset_new": (c_uint64, _I64, c_size_t, _U64),
    "redox_subset_close": (c_uint64,),
    "redox_close": (c_uint64,),
    "redox_loader_new": (c_uint64, c_char_p, _U64),
    "redox_next_batch": (c_uint64, POINTER(Batch), c_int64),
    "redox_next_parts": (c_uint64, POINTER(Batch), c_void_p, c_int64),
    "redox_acquire": (c_uint64, POINTER(Batch), c_int64, _U64),
    "redox_release": (c_uint64,),
    "redox_set_epoch": (c_uint64, c_uint64),
    "redox_state": (c_uint64, *_TEXT),
    "redox_restore": (c_uint64, c_char_p),
    "redox_stats": (c_uint64, *_TEXT),
    "redox_cancel": (c_uint64,),
    "redox_loader_rest": (c_uint64, c_int64),
    "redox_loader_close": (c_uint64,),
    "redox_mesh_new": (c_uint64, c_char_p, _U64),
    "redox_mesh_card": (c_uint64, *_TEXT),
    "redox_mesh_meet": (c_uint64, c_char_p, c_int64),
    "redox_mesh_close": (c_uint64,),
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
    "redox_engine_serve": (c_int, c_char_p),
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


def inherited() -> bool:
    """Return whether the C library was loaded before this process was forked: it can't be used here."""
    return _pid not in (0, os.getpid())


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
    global _library, _pid
    path = library_path()
    if not path.is_file():
        raise ImportError(
            f"{path} is missing: in a source tree run make build, else install redox-loader again", path=str(path)
        )
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise ImportError(f"the Redox library can't be loaded: {error}", path=str(path)) from None
    _refuse_stale(path, library)
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
        raise ImportError(
            f"{path} speaks ABI {library.redox_abi_version()}, this package {ABI_VERSION}", path=str(path)
        )
    _start_log()
    _library, _pid = library, os.getpid()
    return library


def _refuse_stale(path: Path, library: Any) -> None:
    """In a source tree (an editable install), refuse a library that was built from other sources."""
    root = path.parent.parent.parent
    script = root / "capi" / "sourcehash.py"
    if not script.is_file():
        return
    spec = importlib.util.spec_from_file_location("redox_sourcehash", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    library.redox_source_hash.restype = c_char_p
    if library.redox_source_hash().decode() != module.source_hash(root):
        raise ImportError(f"{path} is not built from the sources in {root}: run make build there", path=str(path))


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
    return described({**report, "status": status, "message": message})


def described(report: dict[str, Any]) -> Exception:
    """Return the exception for a failure that is told as redox_last_error_json does."""
    status, message = report["status"], report["message"]
    if status in (EINVAL, EIO) and report.get("errno") == EEXIST:
        return FileExistsError(EEXIST, message)
    kind = _ERRORS.get(status, errors.EngineError)
    if not issubclass(kind, errors.Error):
        return kind(message)
    return kind(message, **{name: report[name] for name in _ATTRIBUTES if report.get(name) is not None})


def check(status: int) -> None:
    """Raise the exception that a status stands for, if it is a failure."""
    if status < 0:
        poll_log()
        raise failure(status)


def text(call: str, *arguments: Any) -> bytes:
    """Return the text of a call whose last arguments are (buf, cap, need)."""
    function = getattr(load(), call)
    need = c_size_t(4096)
    while True:
        buffer = ctypes.create_string_buffer(need.value)
        status = function(*arguments, buffer, len(buffer), byref(need))
        if status != ERANGE or need.value <= len(buffer):
            check(status)
            return buffer.raw[: max(0, need.value - 1)]


def parsed(call: str, *arguments: Any) -> dict[str, Any]:
    return dict(json.loads(text(call, *arguments)))


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
        hand_on(buffer.raw[: need.value - 1])


def owns(pid: int) -> bool:
    """Return whether finalisers may still touch native handles of process `pid`.

    A forked child must leave its parent's alone, and a process that ends frees them quicker than they can be closed.
    """
    return pid == _pid == os.getpid() and not sys.is_finalizing()
