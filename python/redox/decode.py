"""Encoded images to pictures. Pillow is imported when the first one is decoded."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from redox.schema import IMAGES

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["decoder"]


def decoder(kind: str) -> Any:
    """Return the function from encoded bytes to a picture for a field kind; None for kinds that are no images."""
    if kind not in IMAGES:
        return None
    return _as_stored if kind == "image:raw" else _as_rgb


def _as_rgb(data: bytes) -> Image:
    """Return an RGB picture, as torchvision's default loader does."""
    return _open(data).convert("RGB")


def _as_stored(data: bytes) -> Image:
    """Return a picture with the mode and depth that it was stored with (masks, depth maps)."""
    picture = _open(data)
    picture.load()
    return picture


def _open(data: bytes) -> Image:
    try:
        from PIL import Image
    except ImportError:
        raise ImportError(
            "decoding images needs Pillow: pip install pillow, or pass decode=False for the bytes"
        ) from None
    return Image.open(io.BytesIO(data))
