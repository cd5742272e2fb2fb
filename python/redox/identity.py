"""Telling whether a source, its transform and the options are those of last time."""

from __future__ import annotations

import functools
import hashlib
import json
import re
import types
from collections.abc import Iterable
from typing import Any

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def fingerprint(parts: Iterable[str], options: dict[str, Any]) -> str:
    """One hash over what tells a source from others and over what decides how it is written."""
    hashed = hashlib.blake2b(b"redox source 1\n", digest_size=16)
    hashed.update(json.dumps(options, sort_keys=True, default=repr).encode())
    for part in parts:
        data = part.encode("utf-8", "surrogateescape")
        hashed.update(b"%d\n" % len(data))
        hashed.update(data)
    return hashed.hexdigest()


def of_callable(function: Any) -> str:
    """What a function does, as far as it can be told: its code and what it holds, not where it lies in memory."""
    if function is None:
        return ""
    if isinstance(function, functools.partial):
        inner = ", ".join([of_callable(function.func), *map(of_value, function.args)])
        return f"partial({inner}, {sorted((k, of_value(v)) for k, v in function.keywords.items())})"
    if isinstance(function, types.MethodType):
        return f"{of_callable(function.__func__)} of {of_value(function.__self__)}"
    if isinstance(function, types.FunctionType):
        held = [of_value(cell.cell_contents) for cell in function.__closure__ or () if _is_set(cell)]
        name = f"{function.__module__}.{function.__qualname__}"
        return f"{name}({_code(function.__code__)}, {function.__defaults__!r}, {held})"
    return of_value(function)


def of_value(value: Any) -> str:
    """A value's words, without addresses."""
    if isinstance(value, (types.FunctionType, types.MethodType, functools.partial)):
        return of_callable(value)
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    words: Any = type(value).__repr__
    if hasattr(value, "__dict__") and words is object.__repr__:
        return f"{name}({_ADDRESS.sub('', repr(sorted(vars(value).items(), key=lambda item: item[0])))})"
    return f"{name}({_ADDRESS.sub('', repr(value))})"


def _code(code: types.CodeType) -> str:
    hashed = hashlib.blake2b(code.co_code, digest_size=8)
    for constant in code.co_consts:
        hashed.update((_code(constant) if isinstance(constant, types.CodeType) else repr(constant)).encode())
    hashed.update(repr(code.co_names).encode())
    return hashed.hexdigest()


def _is_set(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True
