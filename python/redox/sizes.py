"""Sizes in bytes, as people write them: `"512kb"`, `"8mb"`, `"1.5gb"`; powers of 1024, case-insensitive."""

from __future__ import annotations

import re

__all__ = ["parse_size", "show_size"]

_UNITS = {"": 1, "b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40, "pb": 1 << 50}
_LARGEST = 1 << 60
_PATTERN = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([kmgtp]?b?)\s*", re.IGNORECASE)


def parse_size(value: int | str, option: str, minimum: int = 1, *, instead: str = "") -> int:
    """Return a size in bytes.

    Args:
        value: Bytes, or a number with a unit: `b`, `kb`, `mb`, `gb`, `tb`, `pb` (the `b` may be left out).
        option: The option it is for, named in the error.
        minimum: The smallest size that the option accepts, in bytes.
        instead: What else it accepts, for the error.

    Raises:
        ValueError: It is no size, too small, or more than there is of anything.
    """
    size = _bytes_of(value)
    if size is None or not minimum <= size <= _LARGEST:
        raise ValueError(
            f"{option}={value!r}: expected {instead and instead + ' or '}a size of at least {show_size(minimum)}, "
            'as bytes or like "512kb", "8mb", "1.5gb"'
        )
    return size


def _bytes_of(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        match = _PATTERN.fullmatch(value)
        if match is None:
            return None
        unit = match[2].lower()
        if unit and not unit.endswith("b"):
            unit += "b"
        return int(float(match[1]) * _UNITS[unit])
    try:
        return value.__index__()  # type: ignore[attr-defined, no-any-return]
    except (AttributeError, TypeError):
        return None


def show_size(size: int) -> str:
    """Return a size in bytes as a person reads it: `8388608` → `"8.0 MiB"`."""
    if size < 1024:
        return f"{size} B"
    amount = float(size)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        amount /= 1024
        if amount < 1024:
            return f"{amount:.1f} {unit}"
    return f"{amount / 1024:.1f} PiB"
