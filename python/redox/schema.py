"""What a sample is made of: field kinds, written by hand or recognised from samples.

For whoever packs: a `Schema` is the list of named fields and how they sit in a sample (tuple, dict, scalar).
How values of these kinds become bytes is `encode.py`; how bytes become values again is not our business here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

Layout = Literal["tuple", "dict", "scalar"]

SCALAR = "value"  # the name of the only field of samples that are neither tuples nor dicts
IMAGES = ("image", "jpeg", "png", "image:raw")
PLAIN = ("bytes", "str", "int", "float", "bool", "json", *IMAGES)
DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "bfloat16", "complex64", "complex128"),
)
_ARRAY = re.compile(r"^([a-z]+[0-9]*)(?:\[([0-9, ]*|\.\.\.)\])?$")


@dataclass(frozen=True)
class Field:
    """One named field.

    Attributes:
        name: its name in dict samples; in tuples the place, unless given.
        kind: `bytes`, `str`, `int`, `float`, `bool`, `json`, `image`, `jpeg`, `png`, `image:raw`, or `array`.
        dtype: of an array, else "".
        shape: of a fixed array; None for arrays of any shape and for other kinds.
        nullable: whether None is a value.
        inferred: recognised from a sample, so that values which would come out changed are refused.
    """

    name: str
    kind: str
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    nullable: bool = False
    inferred: bool = False

    @classmethod
    def parse(cls, name: str, text: str) -> Field:
        """Reads a kind as users write it: `"jpeg"`, `"float32[3,32,32]"`, `"str?"`."""
        if not isinstance(name, str) or not name:
            raise ValueError(f"fields: a name must be a non-empty string, got {name!r}")
        if not isinstance(text, str):
            raise ValueError(f"fields: the kind of {name!r} must be a string, got {text!r}")
        nullable = text.endswith("?")
        bare = text.removesuffix("?").strip()
        if bare in PLAIN:
            return cls(name, bare, nullable=nullable)
        match = _ARRAY.match(bare)
        if match is None or match[1] not in DTYPES:
            raise ValueError(
                f"fields: unknown kind {text!r} of {name!r}; kinds are {', '.join(PLAIN)},"
                f" a dtype ({', '.join(DTYPES)}) for arrays of any shape (bool[...] for bool),"
                " dtype[shape] for fixed ones, each with an optional ? for values that may be None"
            )
        shape = None if match[2] in (None, "...") else tuple(int(n) for n in match[2].split(",") if n.strip())
        return cls(name, "array", match[1], shape, nullable)

    @property
    def text(self) -> str:
        """The kind as users write it, the inverse of `parse`."""
        kind = self.kind
        if kind == "array":
            shape = "..." if self.shape is None else ",".join(map(str, self.shape))
            kind = f"{self.dtype}[{shape}]" if self.shape is not None or self.dtype in PLAIN else self.dtype
        return kind + ("?" if self.nullable else "")


@dataclass(frozen=True)
class Schema:
    """The fields of a data set's samples and how a sample holds them."""

    fields: tuple[Field, ...]
    layout: Layout

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields)


FieldsOption = Mapping[str, str] | Sequence[str] | str | None


def check(fields: FieldsOption) -> None:
    """Raises ValueError if `fields` is not a way to write fields; says nothing about any sample."""
    if fields is None:
        return
    if isinstance(fields, str):
        Field.parse(SCALAR, fields)
    elif isinstance(fields, Mapping) and fields:
        for name, kind in fields.items():
            Field.parse(name, kind)
    elif isinstance(fields, Sequence) and not isinstance(fields, (bytes, bytearray)) and fields:
        for place, kind in enumerate(fields):
            Field.parse(str(place), kind)
    else:
        raise ValueError(
            "fields: expected {name: kind}, a list of kinds (for tuples), one kind (for single values) or None,"
            f" got {fields!r}"
        )


def layout_of(sample: Any) -> Layout:
    """How this sample holds its fields."""
    if isinstance(sample, Mapping):
        return "dict"
    return "tuple" if isinstance(sample, tuple) else "scalar"


def split(sample: Any, layout: Layout, hints: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The sample's values by field name. Members of a tuple have the hints' names, if there are as many."""
    if layout == "dict":
        return dict(sample)
    if layout == "scalar":
        return {SCALAR: sample}
    return dict(zip(_tuple_names(sample, hints), sample, strict=True))


def _tuple_names(sample: tuple[Any, ...], hints: Mapping[str, str] | None) -> Sequence[str]:
    named: tuple[str, ...] | None = getattr(sample, "_fields", None)
    if named:
        return named
    if hints and len(hints) == len(sample):
        return list(hints)
    return [str(i) for i in range(len(sample))]


def given(
    sample: Any, fields: Mapping[str, str] | Sequence[str] | str, hints: Mapping[str, str] | None = None
) -> Schema:
    """The schema of explicitly written fields for samples like this one."""
    layout = layout_of(sample)
    if isinstance(fields, str):
        pairs: list[tuple[str, str]] = [(SCALAR, fields)]
        if layout != "scalar":
            raise TypeError(f"fields is one kind ({fields!r}), but the samples are {layout}s; write {{name: kind}}")
    elif isinstance(fields, Mapping):
        pairs = list(fields.items())
    elif layout == "tuple" and len(sample) == len(fields):
        pairs = list(zip(_tuple_names(sample, hints), fields, strict=True))
    else:
        pairs = [(str(i), kind) for i, kind in enumerate(fields)]
    if layout == "tuple" and len(pairs) != len(sample):
        raise TypeError(f"fields names {len(pairs)} fields, but the samples are tuples of {len(sample)}")
    if layout == "scalar" and len(pairs) != 1:
        raise TypeError(
            f"fields names {len(pairs)} fields, but the samples are single values ({type(sample).__name__})"
        )
    if layout == "dict" and not isinstance(fields, Mapping):
        raise TypeError("the samples are dicts: write fields as {name: kind}")
    return Schema(tuple(Field.parse(name, kind) for name, kind in pairs), layout)


def infer(samples: Sequence[tuple[int, Any]], hints: Mapping[str, str] | None = None) -> Schema:
    """Recognises the schema.

    The first sample decides; the others only tell whether arrays have one shape and images one mode.

    Args:
        samples: (number, sample), at least one.
        hints: kinds that the source's format declares, by field name (`label` is an `int`, `image` an `image`).

    Raises:
        TypeError: a value fits no kind; names field and sample.
    """
    number, first = samples[0]
    layout = layout_of(first)
    values = split(first, layout, hints)
    if not values:
        raise TypeError(f"sample {number} is an empty {layout}: there is nothing to pack")
    fields = []
    for name, value in values.items():
        if not isinstance(name, str) or not name:
            raise TypeError(f"sample {number}: field names must be non-empty strings, got {name!r}")
        try:
            field = recognise(name, value, None if hints is None else hints.get(name))
        except TypeError as error:
            raise TypeError(f"sample {number}: field {name!r}: {error}") from None
        others = [split(s, layout, hints).get(name) for _, s in samples[1:] if layout_of(s) == layout]
        fields.append(_widen(field, others))
    return Schema(tuple(fields), layout)


def recognise(name: str, value: Any, hint: str | None = None) -> Field:
    """The field that this value belongs to, or TypeError."""
    if hint is not None and _fits_hint(value, hint):
        return replace(Field.parse(name, hint), inferred=True)
    if is_image(value):
        kind = "png" if value.mode == "RGB" else "image:raw"
        return Field(name, kind, inferred=True)
    array = dtype_and_shape(value)
    if array is not None:
        return Field(name, "array", *array, inferred=True)
    return Field(name, _plain_kind(value), _list_dtype(value), inferred=True)


def is_image(value: Any) -> bool:
    """Whether this is a PIL image; never imports Pillow."""
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(value, module.Image)


def is_tensor(value: Any) -> bool:
    """Whether this is a torch tensor; never imports torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def refuse_partial(value: Any) -> None:
    """TypeError for arrays and tensors that have not a value at every place, which could not come out as they are."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise TypeError("a masked array has places without a value; fill them: array.filled(...)")
    if is_tensor(value) and (str(value.layout) != "torch.strided" or value.is_nested or value.is_meta):
        what = "meta" if value.is_meta else "nested" if value.is_nested else str(value.layout).removeprefix("torch.")
        raise TypeError(f"a tensor of layout {what} has no plain elements; make it a dense one, like tensor.to_dense()")


def dtype_and_shape(value: Any) -> tuple[str, tuple[int, ...]] | None:
    """Of arrays, tensors and numpy's own numbers; None for anything else. TypeError for dtypes we have not."""
    refuse_partial(value)
    if is_tensor(value):
        dtype = str(value.dtype).removeprefix("torch.")
    elif isinstance(value, (np.ndarray, np.generic)) and not isinstance(value, (np.bytes_, np.str_)):
        dtype = value.dtype.name
    else:
        return None
    if dtype not in DTYPES:
        raise TypeError(f"arrays of dtype {dtype} have no field kind; dtypes are {', '.join(DTYPES)}")
    return dtype, tuple(int(n) for n in value.shape)


def _plain_kind(value: Any) -> str:
    for types, kind in (((bool,), "bool"), ((int,), "int"), ((float,), "float"), ((str,), "str")):
        if isinstance(value, types):
            return kind
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "bytes"
    if isinstance(value, (list, tuple)) and _list_dtype(value):
        return "array"
    if isinstance(value, (list, tuple, Mapping)):
        return "json"
    if value is None:
        raise TypeError("is None, so its kind can't be told; pass fields={…} with a kind that ends in ?")
    raise TypeError(
        f"a {type(value).__module__}.{type(value).__qualname__} fits no field kind; convert it, or use transform="
    )


def _list_dtype(value: Any) -> str:
    """ "int64" or "float64" for a non-empty list of numbers, else ""."""
    if not isinstance(value, (list, tuple)) or not value:
        return ""
    if all(isinstance(v, (int, np.integer)) and not isinstance(v, bool) for v in value):
        return "int64"
    if all(isinstance(v, (int, float, np.integer, np.floating)) and not isinstance(v, bool) for v in value):
        return "float64"
    return ""


def _fits_hint(value: Any, hint: str) -> bool:
    if hint in IMAGES:
        return isinstance(value, (bytes, bytearray, memoryview)) or (is_image(value) and value.mode == "RGB")
    if hint == "json":
        return value is None or isinstance(value, (bool, int, float, str, list, dict))
    return bool(type(value).__name__ == hint)


def _widen(field: Field, others: Iterable[Any]) -> Field:
    """Any shape where shapes differ, `image:raw` where modes do: told from the first samples, not from all."""
    for value in others:
        if field.kind == "array" and field.shape is not None:
            try:
                found = dtype_and_shape(value)
            except TypeError:
                continue  # the sample itself will be refused, by name
            if found is not None and found[0] == field.dtype and found[1] != field.shape:
                return replace(field, shape=None)
        elif field.kind in ("image", "png") and is_image(value) and value.mode != "RGB":
            return replace(field, kind="image:raw")
    return field
