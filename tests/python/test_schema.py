"""Kinds, recognising them, and turning values into bytes. Pure: no library."""

from __future__ import annotations

import io
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given as forall
from hypothesis import strategies as st
from PIL import Image
from redox import images
from redox.encode import Encoder
from redox.schema import Field, Schema, check, given, infer

torch = pytest.importorskip("torch")


class Point(NamedTuple):
    x: int
    y: float


def kinds(*samples: Any, hints: dict[str, str] | None = None) -> dict[str, str]:
    schema = infer(list(enumerate(samples)), hints)
    return {f.name: f.text for f in schema.fields}


def encoded(sample: Any, fields: Any = None) -> list[bytes | None]:
    schema = infer([(0, sample)]) if fields is None else given(sample, fields)
    return Encoder(schema)(sample, 0).values


@pytest.mark.parametrize(
    ("text", "kind", "dtype", "shape", "nullable"),
    [
        ("jpeg", "jpeg", "", None, False),
        ("image:raw?", "image:raw", "", None, True),
        ("float32[3,32,32]", "array", "float32", (3, 32, 32), False),
        ("float32[3, 32]", "array", "float32", (3, 32), False),
        ("bfloat16", "array", "bfloat16", None, False),
        ("int32[]", "array", "int32", (), False),
        ("bool", "bool", "", None, False),
        ("bool[...]", "array", "bool", None, False),
        ("uint8[0]?", "array", "uint8", (0,), True),
    ],
)
def test_kinds_are_read(text: str, kind: str, dtype: str, shape: Any, nullable: bool) -> None:
    assert Field.parse("x", text) == Field("x", kind, dtype, shape, nullable)
    again = Field.parse("x", Field.parse("x", text).text)
    assert again == Field.parse("x", text)


@pytest.mark.parametrize("text", ["", "?", "array", "jpg", "float31", "int8[", "int8[-1]", "int8[a]", "str[3]", 3])
def test_other_kinds_are_refused(text: Any) -> None:
    with pytest.raises(ValueError, match="'x'"):
        Field.parse("x", text)


@pytest.mark.parametrize("fields", [{}, [], 3, {"a": "nothing"}, {1: "int"}, ["int", "nothing"], "nothing", b"int"])
def test_wrong_fields_options_are_refused(fields: Any) -> None:
    with pytest.raises(ValueError, match="fields"):
        check(fields)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, "bool"),
        (np.True_, "bool[]"),
        (3, "int"),
        (0.5, "float"),
        ("ü", "str"),
        (b"", "bytes"),
        (bytearray(b"x"), "bytes"),
        (np.zeros((2, 3), np.float16), "float16[2,3]"),
        (np.int32(4), "int32[]"),
        (torch.zeros(3, dtype=torch.bfloat16), "bfloat16[3]"),
        (torch.tensor(3), "int64[]"),
        ([1, 2, 3], "int64"),
        ([1, 2.5], "float64"),
        ([True, False], "json"),
        ([], "json"),
        ([[1, 2], [3]], "json"),
        ({"a": [1, None]}, "json"),
        (Image.new("RGB", (2, 2)), "png"),
        (Image.new("L", (2, 2)), "image:raw"),
    ],
)
def test_kinds_are_recognised(value: Any, kind: str) -> None:
    assert kinds({"x": value}) == {"x": kind}
    assert kinds(value) == ({"value": kind} if not isinstance(value, dict) else {"a": "json"})


def test_layouts_and_names() -> None:
    assert infer([(0, (1, "a"))]).layout == "tuple"
    assert infer([(0, (1, "a"))]).names == ("0", "1")
    assert infer([(0, Point(1, 2.0))]).names == ("x", "y")
    assert infer([(0, {"b": 1, "a": 2})]) == Schema(
        (Field("b", "int", inferred=True), Field("a", "int", inferred=True)), "dict"
    )
    assert infer([(0, 7)]).layout == "scalar"
    assert infer([(0, (b"x", 1))], {"image": "image", "label": "int"}).names == ("image", "label")


def test_different_shapes_among_the_first_samples_mean_any_shape() -> None:
    assert kinds({"x": np.zeros(3)}, {"x": np.zeros(4)}) == {"x": "float64"}
    assert kinds({"x": np.zeros(3)}, {"x": np.zeros(3)}) == {"x": "float64[3]"}
    assert kinds((Image.new("RGB", (1, 1)),), (Image.new("L", (1, 1)),)) == {"0": "image:raw"}


@pytest.mark.parametrize(
    "value", [None, object(), {1, 2}, 1j, np.array(["a"]), np.array([object()]), np.datetime64("2020-01-01")]
)
def test_what_fits_nowhere_names_field_and_sample(value: Any) -> None:
    with pytest.raises(TypeError, match=r"sample 5.*'x'"):
        infer([(5, {"x": value})])


@pytest.mark.parametrize("sample", [{}, ()])
def test_empty_samples_are_refused(sample: Any) -> None:
    with pytest.raises(TypeError, match="sample 0 is an empty"):
        infer([(0, sample)])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (1, "a"),
        (1, 1.5),
        (1, True),
        (1, 1 << 63),
        (True, 1),
        ("a", b"a"),
        (b"a", "a"),
        ("a", "\ud800"),
        (0.5, "x"),
        (0.5, (1 << 53) + 1),
        (np.zeros(3, np.float32), np.zeros(3)),
        (np.zeros(3, np.float32), np.zeros(4, np.float32)),
        (torch.zeros(3), torch.zeros(3, dtype=torch.float64)),
        ([1, 2], [1.5]),
        ({"a": 1}, {1: "a"}),
        ({"a": 1}, {"a": b"x"}),
        (Image.new("RGB", (2, 2)), Image.new("L", (2, 2))),
        (Image.new("RGB", (2, 2)), 3),
        (1, None),
    ],
)
def test_a_value_unlike_the_first_names_field_and_sample(first: Any, second: Any) -> None:
    encoder = Encoder(infer([(0, {"x": first})]))
    encoder({"x": first}, 0)
    with pytest.raises(TypeError, match="sample 7: field 'x'"):
        encoder({"x": second}, 7)


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        ({"x": 1}, "'y' is missing"),
        ({"x": 1, "y": 2, "z": 3}, "'z' is not among"),
        ((1, 2), "first was a dict"),
        (3, "first was a dict"),
    ],
)
def test_a_sample_of_another_form_is_refused(sample: Any, words: str) -> None:
    encoder = Encoder(infer([(0, {"x": 1, "y": 2})]))
    with pytest.raises(TypeError, match=words):
        encoder(sample, 1)
    with pytest.raises(TypeError, match="tuple of 3, expected 2"):
        Encoder(infer([(0, (1, 2))]))((1, 2, 3), 1)


def test_chosen_fields() -> None:
    schema = given({"a": 1, "b": "x"}, {"b": "str?"})
    assert Encoder(schema, select=True)({"a": 1, "b": "x"}, 0).values == [b"x"]
    assert Encoder(schema, select=True)({"a": 1}, 0).values == [None]
    assert Encoder(schema)({"b": None}, 0).values == [None]
    with pytest.raises(TypeError, match="'a' is not among"):
        Encoder(schema)({"a": 1, "b": "x"}, 0)
    assert encoded((1, 2.0), ["int", "float"])[0] == (1).to_bytes(8, "little")
    assert encoded([1, 2], "int32[2]") == [np.array([1, 2], np.int32).tobytes()]
    with pytest.raises(TypeError, match="exactly int8"):
        encoded([300], "int8")


def test_extra_and_missing_nullable_keys_do_not_cancel_out() -> None:
    encoder = Encoder(given({"a": 1}, {"a": "int", "b": "int?"}))
    with pytest.raises(TypeError, match="'c' is not among"):
        encoder({"a": 1, "c": 2}, 0)


def test_arrays_keep_bytes_and_shape() -> None:
    array = np.arange(6, dtype=">i2").reshape(2, 3).T  # big-endian, not contiguous
    record = Encoder(given({"x": array}, {"x": "int16"}))({"x": array}, 0)
    assert record.shapes == [(3, 2)]
    assert np.array_equal(np.frombuffer(record.values[0] or b"", "<i2").reshape(3, 2), array)
    half = torch.tensor([1.5, -2.0], dtype=torch.bfloat16, requires_grad=True)
    assert encoded((half,)) == [half.detach().view(torch.int16).numpy().tobytes()]


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16", "I", "F", "CMYK", "YCbCr", "LAB"])
def test_images_come_out_as_they_went_in(mode: str) -> None:
    noise = np.random.default_rng(0).integers(0, 255, 12 * 9 * 8, dtype=np.uint8).tobytes()
    size = len(Image.new(mode, (12, 9)).tobytes())
    image = Image.frombytes(mode, (12, 9), noise[:size] if mode != "F" else np.arange(108, dtype=np.float32).tobytes())
    if mode == "P":
        image.putpalette(noise[:768])
    (data,) = encoded((image,))
    again = Image.open(io.BytesIO(data or b""))
    assert again.mode == mode
    assert again.tobytes() == image.tobytes()
    assert again.getpalette() == image.getpalette()


def test_untouched_images_keep_their_bytes() -> None:
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (20, 20, 3), dtype=np.uint8)).save(out, "JPEG")
    data = out.getvalue()
    encoder = Encoder(infer([(0, (data, 1))], {"image": "image", "label": "int"}))
    image = images.decoded(data)
    assert encoder((image, 1), 0).values[0] == data
    image.putpixel((0, 0), (1, 2, 3))  # in place: the object is the same, the picture is not
    changed = encoder((image, 1), 0).values[0]
    assert changed != data
    assert Image.open(io.BytesIO(changed or b"")).getpixel((0, 0)) == (1, 2, 3)
    with pytest.raises(ValueError, match="does not decode"):
        images.decoded(b"no image")


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
)


@forall(json_values)
def test_json_comes_out_as_it_went_in(value: Any) -> None:
    import json

    (data,) = Encoder(given({"x": value}, {"x": "json"}))({"x": value}, 0).values
    assert json.loads(data or b"") == value


@forall(
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"])),
)
def test_plain_values_are_exact(number: int, real: float, text: str) -> None:
    one, two, three = encoded((number, real, text))
    assert int.from_bytes(one or b"", "little", signed=True) == number
    assert np.frombuffer(two or b"", "<f8")[0] == real
    assert (three or b"").decode() == text
