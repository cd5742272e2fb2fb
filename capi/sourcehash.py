"""The hash of everything that the library is built from.

`build.py` puts it into the library (`redox_source_hash()`), and the Python package of a checkout compares it when it
loads the library: times of files say nothing after `git checkout`, and a library older than its sources is the kind of
mistake that costs an afternoon.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def sources(root: Path) -> list[str]:
    """Return the files that decide what the library does by their path relative to `root`, sorted."""
    found = ["go.mod", "go.sum", "include/redox.h"]
    for folder in ("capi", "golib"):
        for path, _, names in os.walk(root / folder):
            within = os.path.relpath(path, root).replace(os.sep, "/")
            found += [
                f"{within}/{name}"
                for name in names
                if name.endswith((".go", ".c", ".h", ".map")) and not name.endswith("_test.go")
            ]
    return sorted(found)


def source_hash(root: Path) -> str:
    """Return 32 hexadecimal digits that change with any of the sources: name, length or content."""
    digest = hashlib.sha256()
    for path in sources(root):
        with open(root / path, "rb") as file:
            data = file.read()
        digest.update(f"{path}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()[:32]
