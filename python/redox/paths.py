"""Paths as users give them, checked before anything is done with them."""

from __future__ import annotations

import os
from typing import Any

__all__ = ["path_text"]


def path_text(option: str, path: Any) -> str:
    """Return a path as text.

    Raises:
        ValueError: It is bytes, empty, or has a NUL in it, where C would end it: another path.
    """
    text = os.fspath(path)
    if not isinstance(text, str):
        raise ValueError(f"{option}={path!r}: expected a str or a path")
    if not text:
        raise ValueError(f"{option}={text!r}: path is empty, expected a file or a folder")
    if "\0" in text:
        raise ValueError(f"{option}={text!r}: expected a path without a NUL")
    return text
