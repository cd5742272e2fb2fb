"""Byte strings whose bytes come later: memory of Python's own that the library fills."""

from __future__ import annotations

import ctypes

import numpy as np

__all__ = ["blank", "keep_heap"]

_LARGEST = 31 << 20  # bytes: glibc learns from freed blocks up to 32 MiB
_kept = 0


def keep_heap(size: int) -> None:
    """Let malloc keep the memory of a dropped batch of so many bytes for the next one.

    glibc gives the top of its heap back to the system as soon as 128 KiB of it are free, so that each batch of large
    values would touch all its pages anew, which takes four times as long as filling them. It keeps twice the size of
    the largest block that was ever mapped and freed.
    """
    global _kept  # noqa: PLW0603 - malloc is one for the process, too
    if size > _kept:
        _kept = size
        bytes(min(size, _LARGEST))


# CPython's own way to make a byte string of which nobody knows yet: with room, and filled before it is shown.
_new = ctypes.pythonapi.PyBytes_FromStringAndSize
_new.argtypes, _new.restype = (ctypes.c_void_p, ctypes.c_ssize_t), ctypes.py_object
_address = ctypes.pythonapi.PyBytes_AsString
_address.argtypes, _address.restype = (ctypes.py_object,), ctypes.c_void_p
_HEAD = int(_address(b"redox")) - id(b"redox")


def blank(sizes: list[int]) -> tuple[list[bytes], np.ndarray]:
    """Return byte strings of these sizes with anything in them, and uint64 `[n]`, where their bytes are.

    Nobody may see one before it is filled.
    """
    keep_heap(sum(sizes))
    values = [_new(None, size) for size in sizes]
    return values, np.fromiter(map(id, values), np.uint64, len(values)) + np.uint64(_HEAD)
