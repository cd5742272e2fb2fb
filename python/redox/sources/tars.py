"""Tars read from beginning to end, where nothing that is damaged passes for the end.

`tarfile` takes a bad header for the end of the archive and says nothing, and of compressed tars it reads no checksum.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, TypeVar

_T = TypeVar("_T")
_BLOCK = tarfile.BLOCKSIZE
_ZEROS = bytes(_BLOCK)
_MAGIC = b"ustar"  # in headers, at
_MAGIC_AT = 257
_STREAM_ERRORS = (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, ValueError)


class Damage(Exception):  # noqa: N818 - a signal to the source
    """This is no whole tar. The message says what is wrong, and where in the (decompressed) tar."""


class Tar:
    """Iterates over the members of a tar, compressed or not; `read` gives the content of the one at hand.

    Attributes:
        marked: Whether zeros marked its end, as they should. Known when the iteration has ended.

    Raises:
        Damage: While iterating, reading or opening.
        OSError: The file can't be read.
    """

    def __init__(self, path: str) -> None:
        self.marked = False
        self._file = open(path, "rb")  # noqa: SIM115 - closed by __exit__
        try:
            self._tar: Any = self._told(self._open)
        except BaseException:
            self._file.close()
            raise

    def _open(self) -> tarfile.TarFile:
        return tarfile.open(fileobj=_decompressed(self._file), mode="r|", tarinfo=_Header)

    def __enter__(self) -> Tar:
        return self

    def __exit__(self, *exception: object) -> None:
        self._tar.close()
        self._file.close()

    def __iter__(self) -> Iterator[tarfile.TarInfo]:
        following: Callable[[], tarfile.TarInfo | None] = self._tar.next
        while (member := self._told(following)) is not None:
            self._tar.members.clear()  # it would keep them all
            yield member
        self._told(self._end)

    def read(self, member: tarfile.TarInfo) -> bytes:
        """The content of a regular file, the member that the iteration is at."""
        return self._told(lambda: self._content(member))

    def _content(self, member: tarfile.TarInfo) -> bytes:
        file = self._tar.extractfile(member)
        assert file is not None  # regular files have one
        data: bytes = file.read()
        if len(data) != member.size:
            raise Damage(f"member {member.name} is cut off after {len(data)} of {member.size} bytes")
        return data

    def _end(self) -> None:
        """Looks at what follows the last member: the mark, and in compressed tars the checksum."""
        stream, at = self._tar.fileobj, self._tar.offset
        self.marked = stream.tell() - at == _BLOCK
        if not self.marked:
            return
        second = stream.read(_BLOCK)
        if second != _ZEROS[: len(second)]:
            raise Damage(f"at byte {at} is a block of zeros instead of a header")
        while block := stream.read(_BLOCK):
            if block[_MAGIC_AT:].startswith(_MAGIC):
                words = f"there are members behind the end-of-archive mark at byte {at} (tars joined by cat, or damage)"
                raise Damage(words)

    def _told(self, call: Callable[[], _T]) -> _T:
        """The call's result; what it finds wrong as `Damage`."""
        try:
            return call()
        except _STREAM_ERRORS as error:
            tar = getattr(self, "_tar", None)
            where = f"at byte {(max(1, tar.fileobj.tell()) - 1) // _BLOCK * _BLOCK}: " if tar is not None else ""
            raise Damage(f"{where}{error}") from None
        except OSError as error:
            if error.errno is not None:
                raise
            raise Damage(str(error)) from None  # a decompressor's


class _Header(tarfile.TarInfo):
    """A header whose damage is an error."""

    @classmethod
    def frombuf(cls, buf: Any, encoding: str, errors: str) -> _Header:
        if buf == _ZEROS[: len(buf)]:
            return super().frombuf(buf[: len(buf) // _BLOCK * _BLOCK], encoding, errors)  # a cut mark is none
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(str(error)) from None


def _decompressed(file: io.BufferedReader) -> IO[bytes]:
    """The tar's bytes, whatever its name says it is compressed with. The file may be a pipe."""
    start = file.peek(6)
    if start.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=file)  # type: ignore[return-value]
    if start.startswith(b"BZh"):
        return bz2.BZ2File(file)
    if start.startswith((b"\xfd7zXZ", b"\x5d\x00\x00\x80")):
        return lzma.LZMAFile(file)
    return file
