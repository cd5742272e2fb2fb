"""The plan, implemented a second time from docs/plan.md alone, checked against the golden files beside it.

    python3 reference.py        # prints what it checked; exit status 1 if anything differs

Plain and slow on purpose: one sample after the other, no fast-forward. Needs Python 3.10 and nothing else.
"""

import hashlib
import pathlib
import re
import struct
import sys

MASK = 2**64 - 1
GAMMA = 0x9E3779B97F4A7C15


# Randomness: section "Randomness" of docs/plan.md.


def seed(domain, *words):
    text = b"redox/perm/1\0" + domain.encode() + b"\0" + b"".join(struct.pack("<Q", w) for w in words)
    return struct.unpack("<Q", hashlib.sha256(text).digest()[:8])[0]


def mix(x):
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def derive(of, number):
    return mix(of ^ mix((number * GAMMA + GAMMA) & MASK))


class Rand:
    def __init__(self, state):
        self.state = state

    def next(self):
        self.state = (self.state + GAMMA) & MASK
        return mix(self.state)

    def below(self, n):
        while True:
            product = self.next() * n
            if product & MASK >= 2**64 % n:
                return product >> 64

    def shuffle(self, things):
        for i in range(len(things) - 1, 0, -1):
            j = self.below(i + 1)
            things[i], things[j] = things[j], things[i]


def order(of, n):
    r = Rand(of)
    if n <= 16:
        numbers = list(range(n))
        r.shuffle(numbers)
        return numbers
    keys = [r.next() | 1 for _ in range(6)]
    width = (n - 1).bit_length()
    shift, mask = (width + 1) // 2, 2**width - 1
    numbers = []

    def rounds(x):
        for key in keys:
            x = (x * key + (key >> 32)) & mask
            x ^= x >> shift
        return x

    for k in range(n):
        x = rounds(k)
        while x >= n:
            x = rounds(x)
        numbers.append(x)
    return numbers


# The order of an epoch: section "An epoch".


def epoch_order(counts, local, of, window, partitions, epoch, sticky):
    """Yields (chunk, sample, partition) for each position; counts and local as the subset has them."""
    chunks = [c for c, n in enumerate(counts) if n]
    size = sum(counts)

    def dealt(domain):
        return Rand(seed("plan/sticky/" + domain, of) if sticky else seed("plan/" + domain, of, epoch))

    turns = list(range(partitions))
    dealt("turns").shuffle(turns)
    dealt("chunks").shuffle(chunks)
    queues, left = [[] for _ in turns], [0] * partitions
    for c in chunks:
        j = left.index(min(left))
        queues[j].append(c)
        left[j] += counts[c]
    draws = [Rand(seed("plan/draws", of, epoch, q)) for q in turns]
    if sticky:
        for j, q in enumerate(turns):
            Rand(seed("plan/queue", of, epoch, q)).shuffle(queues[j])
    orders = seed("plan/order", of, epoch)
    at_once = max(1, window // 8)
    opens = [max(0, (i - at_once) * size // (2 * partitions * len(chunks))) for i in range(window)]
    opened = [[] for _ in turns]  # virtual chunks: [chunk, samples still to come]
    number = 0  # of the virtual chunk that opens next
    for round_ in range(size * 2 + max(opens) + 1):
        while number < window and opens[number] <= round_:
            opened[number % partitions].append([None, []])
            number += 1
        for j in range(partitions):
            while left[j] and opened[j]:
                i = draws[j].below(len(opened[j])) if len(opened[j]) > 1 else 0
                v = opened[j][i]
                if not v[1] and queues[j]:
                    c = queues[j].pop(0)
                    v[:] = [c, [local(c, k) for k in order(derive(orders, c), counts[c])]]
                if v[1]:
                    left[j] -= 1
                    yield v[0], v[1].pop(0), turns[j]
                    break
                opened[j][i] = opened[j][-1]
                opened[j].pop()
        if not any(left):
            return


# The golden files.

MIXED = [7, 40, 0, 16, 17, 100, 1, 33, 8, 25, 64, 3]
LAYOUTS = {"default": [20] * 40, "large": [390] * 511 + [170]}
RANGES = {"subset": (30, 250)}


def check(path):
    text = path.read_text()
    samples = LAYOUTS.get(path.stem, MIXED)
    first = [sum(samples[:c]) for c in range(len(samples))]
    lo, hi = RANGES.get(path.stem, (0, sum(samples)))
    lows = [max(lo - f, 0) for f in first]
    counts = [max(0, min(hi, f + n) - max(lo, f)) for f, n in zip(first, samples, strict=True)]
    head = dict(re.findall(r"(\w+) (\w+)", text.splitlines()[0]))
    want = re.findall(r"SHA-256 of all.*: (\w+)", text)
    for epoch, digest in enumerate(want):
        if head["shuffle"] == "true":
            numbers = [
                first[c] + k
                for c, k, _ in epoch_order(
                    counts,
                    lambda c, k: lows[c] + k,
                    int(head["seed"]),
                    int(head["window"]),
                    int(head["partitions"]),
                    epoch,
                    head["sticky"] == "true",
                )
            ]
        else:
            numbers = list(range(lo, hi))
        if hashlib.sha256(b"".join(struct.pack("<Q", n) for n in numbers)).hexdigest() != digest:
            return False
    return bool(want)


def main():
    paths = sorted(pathlib.Path(__file__).parent.glob("*.txt"))
    differing = [p.name for p in paths if not check(p)]
    print(f"{len(paths) - len(differing)} of {len(paths)} golden plans equal", *differing)
    return 1 if differing or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
