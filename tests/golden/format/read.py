"""A second reader of Redox data sets, which shares nothing with the library: python3 read.py DIRECTORY

Prints one line a sample, ordered by source number. It checks every checksum that it comes by.
"""

import json
import struct
import sys
from itertools import pairwise
from pathlib import Path

TABLE = []
for number in range(256):
    entry = number
    for _ in range(8):
        entry = entry >> 1 ^ (0x82F63B78 if entry & 1 else 0)
    TABLE.append(entry)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def lz4(block):
    out, at = bytearray(), 0

    def length(n):
        nonlocal at
        more = n == 15
        while more:
            n, more, at = n + block[at], block[at] == 255, at + 1
        return n

    while True:
        token = block[at]
        at += 1
        literals = length(token >> 4)
        out += block[at : at + literals]
        at += literals
        if at == len(block):
            return bytes(out)
        offset = struct.unpack_from("<H", block, at)[0]
        at += 2
        for _ in range(length(token & 15) + 4):
            out.append(out[-offset])


def take(data, kind, count, at):
    return struct.unpack_from(f"<{count}{kind}", data, at), at + count * struct.calcsize(kind)


def split(schema, sample, raw_body):
    """The fields of one stored sample."""
    nullable = [f for f in schema if f.get("nullable")]
    sizes = [fixed(f) for f in schema]
    variable = [i for i, n in enumerate(sizes) if n is None]
    bitmap = (len(nullable) + 7) // 8
    lengths, start = take(sample, "Q", max(0, len(variable) - 1), bitmap)
    body = sample[start:]
    if len(body) < raw_body:
        body = lz4(body)
    assert len(body) == raw_body
    values, at = {}, 0
    for i, f in enumerate(schema):
        if sizes[i] is not None:
            values[f["name"]], at = body[at : at + sizes[i]], at + sizes[i]
    for i, n in zip(variable, [*lengths, None][: len(variable)], strict=True):
        end = len(body) if n is None else at + n
        values[schema[i]["name"]], at = body[at:end], end
    for bit, f in enumerate(nullable):
        if not sample[bit // 8] >> bit % 8 & 1:
            values[f["name"]] = None
    return values


def fixed(field):
    if field["kind"] in ("int", "float"):
        return 8
    if field["kind"] == "bool":
        return 1
    if field["kind"] != "array" or field["shape"] is None:
        return None
    n = {"float32": 4, "uint16": 2}[field["dtype"]]
    for d in field["shape"]:
        n *= d
    return n


def chunk(b, schema):
    """The samples of one chunk: (source, key, fields)."""
    assert b[:8] == b"RDXCHUNK"
    assert crc32c(b[:124]) == struct.unpack_from("<I", b, 124)[0]
    flags, _, _, n, table, payload = struct.unpack_from("<IQQIIQ", b, 12)
    packed, wide, keyed, even = (bool(flags & 1 << i) for i in range(4))
    start = 128 + table
    sum_table, sum_payload = struct.unpack_from("<II", b, 96)
    assert crc32c(b[128:start]) == sum_table
    assert crc32c(b[start : start + payload]) == sum_payload
    size = "Q" if wide else "I"
    sources, at = take(b, "Q", n, 128)
    ends, at = ([payload // n * (i + 1) for i in range(n)], at) if even else take(b, size, n, at)
    raws, at = take(b, size, n, at) if packed else (None, at)
    sums, at = take(b, "I", n, at)
    keys = [b""] * n
    if keyed:
        stops, at = take(b, "I", n, at)
        keys = [b[at + first : at + stop] for first, stop in pairwise([0, *stops])]
    prefix = (sum(bool(f.get("nullable")) for f in schema) + 7) // 8
    prefix += 8 * max(0, sum(fixed(f) is None for f in schema) - 1)
    for i, (first, end) in enumerate(pairwise([0, *ends])):
        sample = b[start + first : start + end]
        assert crc32c(sample) == sums[i]
        values = split(schema, sample, raws[i] if packed else len(sample) - prefix)
        yield sources[i], (keys[i] or str(sources[i]).encode()).decode(), values


def main(root):
    text = (root / "manifest.json").read_bytes()
    manifest = json.loads(text)
    mark = b'"checksum": "'
    at = text.rindex(mark) + len(mark)
    assert crc32c(text[:at] + b"00000000" + text[at + 8 :]) == int(manifest["checksum"], 16)
    index = (root / "chunks.idx").read_bytes()
    assert index[:8] == b"RDXINDEX"
    assert crc32c(index) == int(manifest["index"]["crc32c"], 16)
    samples = []
    for at in range(64, len(index), 64):
        shard, _, offset, stored = struct.unpack_from("<IIQQ", index, at)
        data = (root / manifest["shards"][shard]["name"]).read_bytes()
        assert crc32c(data) == int(manifest["shards"][shard]["crc32c"], 16)
        samples += chunk(data[offset : offset + stored], manifest["schema"]["fields"])
    assert len(samples) == manifest["samples"]
    for source, key, values in sorted(samples, key=lambda s: s[0]):
        fields = (f"{name}={'-' if v is None else v.hex()}" for name, v in values.items())
        sys.stdout.buffer.write(f"{source} {key!r} {' '.join(sorted(fields))}\n".encode())


main(Path(sys.argv[1]))
