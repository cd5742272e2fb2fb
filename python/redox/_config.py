"""`redox-config`: flags to compile and link C and C++ programs against the library in this package."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from . import __version__

_HERE = Path(__file__).resolve().parent


def include_dir() -> Path:
    """Where redox.h is: in the package, or beside it in a source tree."""
    for folder in (_HERE / "include", _HERE.parent.parent / "include"):
        if (folder / "redox.h").is_file():
            return folder
    raise FileNotFoundError(f"redox.h is neither in {_HERE / 'include'} nor in {_HERE.parent.parent / 'include'}")


def library_path() -> Path:
    """The shared library that this package loads."""
    path = _HERE / "libredox.so.0"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not built yet; in a source tree, run make build")
    return path


def pkgconfig_dir() -> Path:
    """Where redox.pc is."""
    for folder in (_HERE / "pkgconfig", _HERE.parent.parent / "build" / "pkgconfig"):
        if (folder / "redox.pc").is_file():
            return folder
    raise FileNotFoundError("this installation has no redox.pc; use --cflags and --libs")


def main(argv: Sequence[str] | None = None) -> int:
    """Prints what was asked for, in one line; exit code 1 if it is not there."""
    parser = argparse.ArgumentParser(
        prog="redox-config", description=__doc__, epilog="example: cc train.c $(redox-config --cflags --libs) -o train"
    )
    parser.add_argument("--cflags", action="store_true", help="flags to compile with")
    parser.add_argument("--libs", action="store_true", help="flags to link with")
    parser.add_argument("--pkgconfigdir", action="store_true", help="where redox.pc is")
    parser.add_argument("--version", action="store_true", help="the version")
    args = parser.parse_args(argv)
    if not (args.cflags or args.libs or args.pkgconfigdir or args.version):
        parser.error("say what: --cflags, --libs, --pkgconfigdir or --version")
    words = []
    try:
        if args.version:
            words.append(__version__)
        if args.cflags:
            words.append(f"-I{include_dir()}")
        if args.libs:
            # By file name: wheels can't hold the symbolic link that -lredox would look for.
            words += [f"-L{library_path().parent}", f"-l:{library_path().name}", f"-Wl,-rpath,{library_path().parent}"]
        if args.pkgconfigdir:
            words.append(str(pkgconfig_dir()))
    except FileNotFoundError as error:
        print(f"redox-config: {error}", file=sys.stderr)
        return 1
    print(" ".join(words))
    return 0


if __name__ == "__main__":
    sys.exit(main())
