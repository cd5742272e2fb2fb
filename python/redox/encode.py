"""Values to bytes: one encoder per field, and a sample encoder made of them.

For `packing` and `writer`. What cannot come out as it went in is refused with TypeError. Pickle is never used.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .images import original
from .schema import Field, Schema, is_image, is_tensor, layout_of, refuse_partial

Shape = tuple[int, ...]
Encoded = tuple[bytes | None, Shape | None]

_PNG_MODES = frozenset(("1", "L", "LA", "P", "RGB", "RGBA", "I;16"))
_TIFF_MODES = frozenset(("I", "F", "CMYK", "YCbCr", "LAB", "I;16B"))  # what PNG would change and TIFF keeps
_DOUBLE = struct.Struct("<d")
_MAGIC = {"jpeg": b"\xff\xd8", "png": b"\x89PNG"}
_EXACT_INT = 1 << 53  # larger integers are not all float64


class Record(NamedTuple):
    """One encoded sample: for each field its bytes (None: missing) and, for arrays of any shape, the shape."""

    values: list[bytes | None]
    shapes: list[Shape | None]


class Encoder:
    """Encodes samples of one schema.

    Args:
        schema: the fields.
        select: whether a dict's keys that are not fields are left out (else they are an error).
    """

    def __init__(self, schema: Schema, *, select: bool = False) -> None:
        self.schema = schema
        self._select = select
        self._steps = [(f, _encoder(f)) for f in schema.fields]

    def __call__(self, sample: Any, number: int) -> Record:
        """Encodes sample `number` (used in messages).

        Raises:
            TypeError: a field is missing, unknown, or its value is of another kind.
        """
        values: list[bytes | None] = []
        shapes: list[Shape | None] = []
        for (field, encode), value in zip(self._steps, self._pick(sample, number), strict=True):
            if value is None and field.nullable:
                data, shape = None, None
            else:
                try:
                    data, shape = encode(value)
                except (TypeError, ValueError, OverflowError) as error:
                    raise TypeError(f"sample {number}: field {field.name!r}: {error}") from None
            values.append(data)
            shapes.append(shape)
        return Record(values, shapes)

    def _pick(self, sample: Any, number: int) -> Sequence[Any]:
        layout = self.schema.layout
        if layout_of(sample) != layout:
            raise TypeError(f"sample {number} is a {type(sample).__name__}, the first was a {layout}")
        if layout == "scalar":
            return (sample,)
        if layout == "tuple":
            if len(sample) != len(self._steps):
                raise TypeError(f"sample {number} is a tuple of {len(sample)}, expected {len(self._steps)}")
            return sample  # type: ignore[no-any-return]
        return self._pick_keys(sample, number)

    def _pick_keys(self, sample: Mapping[str, Any], number: int) -> list[Any]:
        picked = []
        missing = 0
        for field, _ in self._steps:
            if field.name in sample:
                picked.append(sample[field.name])
            elif field.nullable:
                picked.append(None)
                missing += 1
            else:
                there = ", ".join(map(repr, sample)) or "none"
                raise TypeError(
                    f"sample {number}: field {field.name!r} is missing, there is {there};"
                    " a ? behind its kind in fields= allows that"
                )
        if not self._select and len(sample) > len(picked) - missing:
            extra = next(k for k in sample if k not in self.schema.names)
            raise TypeError(f"sample {number}: field {extra!r} is not among the fields {', '.join(self.schema.names)}")
        return picked


def _encoder(field: Field) -> Callable[[Any], Encoded]:
    if field.kind == "array":
        return _array_encoder(field)
    if field.kind in ("image", "jpeg", "png", "image:raw"):
        return lambda value: (_image(field, value), None)
    plain = _PLAIN[field.kind]
    return lambda value: (plain(value), None)


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    raise _wrong("bytes", value)


def _str(value: Any) -> bytes:
    if not isinstance(value, str):
        raise _wrong("str", value)
    return value.encode()  # lone surrogates raise UnicodeEncodeError, a ValueError


def _int(value: Any) -> bytes:
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        try:
            return int(value).to_bytes(8, "little", signed=True)
        except OverflowError:
            raise TypeError(f"{value} does not fit int64") from None
    raise _wrong("int", value)


def _float(value: Any) -> bytes:
    if isinstance(value, (float, np.floating)):
        return _DOUBLE.pack(value)
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and -_EXACT_INT <= value <= _EXACT_INT:
        return _DOUBLE.pack(value)
    raise _wrong("float", value)


def _bool(value: Any) -> bytes:
    if isinstance(value, (bool, np.bool_)):
        return b"\1" if value else b"\0"
    raise _wrong("bool", value)


def _json(value: Any) -> bytes:
    _check_keys(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _check_keys(value: Any) -> None:
    """json.dumps turns keys that are no strings into strings in silence; here they are refused."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise TypeError(f"json keys must be strings, got {key!r}")
            _check_keys(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            _check_keys(inner)


_PLAIN: dict[str, Callable[[Any], bytes]] = {
    "bytes": _bytes,
    "str": _str,
    "int": _int,
    "float": _float,
    "bool": _bool,
    "json": _json,
}


def _array_encoder(field: Field) -> Callable[[Any], Encoded]:
    dtype, fixed = field.dtype, field.shape

    def encode(value: Any) -> Encoded:
        data, shape = _array(value, dtype)
        if fixed is None:
            return data, shape
        if shape != fixed:
            hint = f"; fields={{{field.name!r}: {dtype!r}}} takes any shape" if field.inferred else ""
            raise TypeError(f"expected shape {list(fixed)}, got {list(shape)}{hint}")
        return data, None

    return encode


def _array(value: Any, dtype: str) -> tuple[bytes, Shape]:
    """The array's elements in C order, little-endian, and its shape."""
    refuse_partial(value)
    if is_tensor(value):
        found = str(value.dtype).removeprefix("torch.")
        if found != dtype:
            raise TypeError(f"expected dtype {dtype}, got {found}")
        return _tensor_bytes(value), tuple(value.shape)
    if isinstance(value, (list, tuple, int, float, bool)):
        value = _from_list(value, dtype)
    if not isinstance(value, (np.ndarray, np.generic)):
        raise _wrong(dtype, value)
    if value.dtype.name != dtype:
        raise TypeError(f"expected dtype {dtype}, got {value.dtype.name}")
    array = np.asarray(value)
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return array.tobytes(), array.shape


def _tensor_bytes(tensor: Any) -> bytes:
    plain = tensor.detach().cpu().contiguous().resolve_conj().resolve_neg()
    if str(plain.dtype) == "torch.bfloat16":  # numpy has none: the same bits under another name
        plain = plain.view(dtype=_torch_int16())
    return bytes(plain.numpy().tobytes())


def _torch_int16() -> Any:
    import torch

    return torch.int16


def _from_list(value: Any, dtype: str) -> np.ndarray[Any, Any]:
    """Numbers in lists, as long as they are exactly numbers of this dtype."""
    if dtype == "bfloat16":
        raise TypeError("expected dtype bfloat16; Python numbers have to be made a tensor first")
    plain = np.asarray(value)
    if plain.size == 0:
        return plain.astype(dtype)
    array = plain.astype(dtype) if plain.dtype.kind in "biufc" else None
    if array is None or (plain.dtype.kind == "b") != (dtype == "bool") or not _same(plain, array):
        raise TypeError(f"expected numbers that are exactly {dtype}, got {_show(value)}")
    return array


def _same(plain: np.ndarray[Any, Any], array: np.ndarray[Any, Any]) -> bool:
    """Floats may be rounded to a shorter float, nothing else may change."""
    if plain.dtype.kind == "f" and array.dtype.kind in "fc":
        return True
    return bool(np.array_equal(plain, array))


def _image(field: Field, value: Any) -> bytes:
    """Encoded bytes as they are; images and arrays of pixels encoded."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, np.ndarray):
        refuse_partial(value)
        from PIL import Image

        value = Image.fromarray(value)
    if not is_image(value):
        raise _wrong("an encoded image (bytes) or a PIL image", value)
    untouched = original(value)
    if untouched is not None and untouched.startswith(_MAGIC.get(field.kind, b"")):
        return untouched
    if field.kind != "image:raw" and value.mode != "RGB":
        if field.inferred:
            raise TypeError(
                f"an image of mode {value.mode}, while others are RGB, would come out as RGB;"
                f" pass fields={{{field.name!r}: 'image:raw'}} to keep modes, or 'png' to have RGB"
            )
        if field.kind == "jpeg" and value.mode not in ("L", "CMYK"):
            value = value.convert("RGB")
    return _encode_image(value, field.kind)


def _encode_image(image: Any, kind: str) -> bytes:
    out = io.BytesIO()
    if kind == "jpeg":
        image.save(out, "JPEG", quality=95)
    elif image.mode in _PNG_MODES:
        image.save(out, "PNG")
    elif image.mode in _TIFF_MODES:
        image.save(out, "TIFF")
    else:
        raise TypeError(f"images of mode {image.mode} have no lossless encoding here; convert them, or pass arrays")
    return out.getvalue()


def _wrong(expected: str, value: Any) -> TypeError:
    return TypeError(f"expected {expected}, got {_show(value)}")


def _show(value: Any) -> str:
    text = repr(value) if isinstance(value, (str, int, float, bool, type(None), list, tuple)) else ""
    name = type(value).__name__
    if not text:
        return name
    return f"{name} ({text if len(text) <= 40 else text[:37] + '...'})"
