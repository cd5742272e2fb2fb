"""`redox cat`."""

from __future__ import annotations

import argparse
import base64
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..dataset import Dataset
from ..schema import Layout, layout_of, split
from .output import Parsers, command, count, print_json, print_table

_SHOWN = 400  # characters of a value


def add(parsers: Parsers) -> None:
    """Declares the subcommand."""
    parser = command(
        parsers,
        "cat",
        run,
        "print single samples",
        "redox cat train.redox 17    redox cat train.redox --key cat/7.jpg --field image > 7.jpg",
    )
    parser.add_argument("path", help="the data set")
    parser.add_argument("number", nargs="*", type=count, help="stored numbers")
    parser.add_argument("--key", action="append", default=[], help="the sample with this key; repeat it")
    parser.add_argument("--field", default=None, metavar="NAME", help="this field's bytes alone, as they are")


def run(args: argparse.Namespace) -> int:
    """Prints samples."""
    if not args.number and not args.key:
        args.parser.error("say which: numbers, or --key")
    with Dataset(args.path) as data:
        numbers = [*args.number, *(_find(data, key) for key in args.key)]
        if args.field is not None:
            for number in numbers:
                _write_field(data, number, args.field)
            return 0
        facts = [_facts(data, number) for number in numbers]
    if args.json:
        print_json(facts[0] if len(facts) == 1 else facts)
    else:
        for place, entry in enumerate(facts):
            _print(entry, place > 0)
    return 0


def _find(data: Dataset, key: str) -> int:
    try:
        return data.find(key)
    except KeyError:
        raise ValueError(f"no sample of {data.path} has the key {key!r}") from None


def _facts(data: Dataset, number: int) -> dict[str, Any]:
    sample = {name: _plain(value) for name, value in _values(data, number).items()}
    return {"number": number, "source": data.source(number), "key": data.key(number), "sample": sample}


def _values(data: Dataset, number: int) -> dict[str, Any]:
    """A sample's values by field name."""
    sample = data[number]
    layout: Layout = layout_of(sample)
    if layout == "dict":
        return dict(sample)
    return dict(zip(data.fields, split(sample, layout).values(), strict=True))


def _write_field(data: Dataset, number: int, name: str) -> None:
    values = _values(data, number)
    if name not in values:
        raise ValueError(f"no field {name!r}; there are {', '.join(values)}")
    value = values[name]
    out = sys.stdout.buffer
    if isinstance(value, (bytes, bytearray, memoryview)):
        out.write(value)
    elif isinstance(value, np.ndarray):
        np.save(out, value, allow_pickle=False)
    else:
        out.write(f"{value}\n".encode())
    out.flush()


def _plain(value: Any) -> Any:
    """A value as JSON has it: bytes as {"base64"}, arrays with dtype and shape."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"base64": base64.b64encode(bytes(value)).decode()}
    if isinstance(value, np.ndarray) or (isinstance(value, np.generic) and not isinstance(value, (bool, int, float))):
        array = np.asarray(value)
        return {"dtype": array.dtype.name, "shape": list(array.shape), "data": _numbers(array)}
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def _numbers(array: np.ndarray[Any, Any]) -> Any:
    if array.dtype.kind in "biuf":
        return array.tolist()
    if array.dtype.kind == "c":
        return np.stack([array.real, array.imag], -1).tolist()
    return {"base64": base64.b64encode(array.tobytes()).decode()}


def _print(entry: dict[str, Any], gap: bool) -> None:
    if gap:
        print()
    rows = [("number", entry["number"]), ("source", entry["source"]), ("key", entry["key"])]
    print_table([(name, str(value)) for name, value in rows])
    print_table([(f"  {name}", _words(value)) for name, value in entry["sample"].items()])


def _words(value: Any) -> str:
    if isinstance(value, dict) and set(value) == {"base64"}:
        data = base64.b64decode(value["base64"])
        return f"{len(data):,} bytes" + (f": {data[:16].hex(' ')}{' …' if len(data) > 16 else ''}" if data else "")
    if isinstance(value, dict) and set(value) == {"dtype", "shape", "data"}:
        text = f"{value['dtype']}{value['shape']} {value['data']}"
    else:
        text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
