"""Check that the header, the version script and the library agree about what the library exports.

python3 tests/c/exports.py python/redox/libredox.so.0
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def in_header() -> set[str]:
    """Return the functions that redox.h declares."""
    text = re.sub(r"/\*.*?\*/", "", (ROOT / "include" / "redox.h").read_text(), flags=re.DOTALL)
    return set(re.findall(r"\b(redox_\w+)\(", text))


def in_version_script() -> set[str]:
    """Return the names under `global:`."""
    text = (ROOT / "capi" / "exports.map").read_text()
    return set(re.findall(r"^\s+(\w+);", text[text.index("global:") : text.index("local:")], re.MULTILINE))


def in_library(path: Path) -> set[str]:
    """Return the symbols that the library defines, which must be of the version REDOX_0."""
    out = subprocess.run(["nm", "-D", "--defined-only", str(path)], capture_output=True, text=True, check=True).stdout
    names = [line.split()[-1] for line in out.splitlines()]
    functions = {name.removesuffix("@@REDOX_0") for name in names if name != "REDOX_0"}
    return functions


def main() -> int:
    """Run the command line."""
    header, script, library = in_header(), in_version_script(), in_library(Path(sys.argv[1]))
    for name in sorted(header | script | library):
        where = [
            what
            for what, names in (("redox.h", header), ("exports.map", script), (sys.argv[1], library))
            if name in names
        ]
        if len(where) < 3:
            print(f"{name} is only in {' and '.join(where)}", file=sys.stderr)
    print(f"exports: {len(header)} functions")
    return 0 if header == script == library else 1


if __name__ == "__main__":
    sys.exit(main())
