"""Images on their way through a user's transform.

A transform gets decoded images, but one that it hands back untouched is stored in its original bytes: decoding and
encoding again would cost quality, size and time. For `sources` and `packing`.
"""

from __future__ import annotations

import io
import weakref
import zlib
from typing import Any, NamedTuple


class _Original(NamedTuple):
    image: weakref.ref[Any]
    check: int
    data: bytes


_originals: dict[int, _Original] = {}


def decoded(data: bytes, *, raw: bool = False) -> Any:
    """Decodes to RGB, as torchvision's default loader does (`raw`: as it is); remembers the bytes while it lives."""
    try:
        from PIL import Image
    except ImportError:
        raise ImportError("decoding images for a transform needs Pillow: pip install pillow") from None

    try:
        with Image.open(io.BytesIO(data)) as opened:
            image = opened.copy() if raw else opened.convert("RGB")
    except (OSError, SyntaxError) as error:
        raise ValueError(f"the image does not decode: {error}") from None
    place = id(image)
    _originals[place] = _Original(weakref.ref(image, lambda _: _originals.pop(place, None)), _check(image), data)
    return image


def original(image: Any) -> bytes | None:
    """The bytes that `decoded` made this image of, if it is unchanged since (also in place)."""
    found = _originals.get(id(image))
    if found is None or found.image() is not image or found.check != _check(image):
        return None
    return found.data


def _check(image: Any) -> int:
    return zlib.crc32(image.tobytes(), image.width)
