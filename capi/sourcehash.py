"""The hash of everything that the library is built from.

`build.py` puts it into the library (`redox_source_hash()`), and the Python package of a checkout compares it when it
loads the library: times of files say nothing after `git checkout`, and a library older than its sources is the kind of
mistake that costs an afternoon.
"""

from __future__ import annotations

import hashlib
from pathlib import Path


def sources(root: Path) -> list[Path]:
    """Return the files that decide what the library does, sorted by their path relative to `root`."""
    found = [root / "go.mod", root / "go.sum", root / "include" / "redox.h"]
    for folder in ("capi", "golib"):
        for path in (root / folder).rglob("*"):
            if path.suffix in (".go", ".c", ".h", ".map") and not path.name.endswith("_test.go") and path.is_file():
                found.append(path)
    return sorted(found, key=lambda path: path.relative_to(root).as_posix())


def source_hash(root: Path) -> str:
    """Return 32 hexadecimal digits that change with any of the sources: name, length or content."""
    digest = hashlib.sha256()
    for path in sources(root):
        data = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()[:32]
