"""Rows of several nodes: the protocol's speed on loopback, and what cluster tests measure in virtual time."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from harness.core import go_bench, go_test
from harness.place import MeasureError
from harness.table import Row, absolute, at_least, skipped

NODE, PEER = "./golib/internal/node", "./golib/internal/peer"
EXCHANGE = ("exchange-quic", "exchange-quic-tls", "exchange-quic-cpu")
VIRTUAL = "virtual time"
Found = dict[str, list[float]]  # by the name that a test gave it


@dataclass(frozen=True)
class Virtual:
    """A row of what tests measured.

    Attributes:
        name: Of the row.
        package: Of the tests.
        tests: That print it.
        row: Makes it.
    """

    name: str
    package: str
    tests: str
    row: Callable[[str, Found], Row]


def measure(names: set[str], rounds: int, quick: bool) -> list[Row]:
    """Return the chosen rows."""
    rows: list[Row] = []
    exchange = [name for name in EXCHANGE if name in names]
    if exchange:
        try:
            rows += _exchange(set(exchange), rounds, quick)
        except MeasureError as error:
            rows += [skipped(name, "", str(error)) for name in exchange]
    chosen = [it for it in ROWS if it.name in names]
    for package in (NODE, PEER):
        here = [it for it in chosen if it.package == package]
        if not here:
            continue
        try:
            found, broken = measurements(package, "|".join(dict.fromkeys(it.tests for it in here)))
        except MeasureError as error:
            rows += [skipped(it.name, "", str(error)) for it in here]
            continue
        for it in here:
            try:
                row = it.row(it.name, found)
                failed = sorted(broken & set(it.tests.split("|")))
                row.note += f"; {' and '.join(failed)} failed" if failed else ""
                rows.append(row)
            except MeasureError as error:
                rows.append(skipped(it.name, "", str(error)))
    return rows


def measurements(package: str, tests: str) -> tuple[Found, set[str]]:
    """Run tests of the core; return what they say they measured, `measured NAME VALUE UNIT`, and which failed.

    A test whose bound does not hold has still measured: its row shows by how much. So a failure ends the measurement
    only where nothing was said.
    """
    output, failed = go_test("-count", "1", "-v", "-run", f"^({tests})$", package, fails=True)
    found: Found = {}
    for name, value in re.findall(r"^\s.*?\bmeasured (\S+) (\S+) \S+$", output, re.MULTILINE):
        found.setdefault(name, []).append(float(value))
    if not found:
        raise MeasureError(failed or f"the tests {tests} of {package} said nothing")
    return found, set(re.findall(r"^--- FAIL: (\w+)", output, re.MULTILINE))


def values(found: Found, pattern: str) -> dict[str, list[float]]:
    """Return what was measured under names that match, by the part of the name that varies.

    Raises:
        MeasureError: There is nothing.
    """
    chosen = {match[1]: found[name] for name in found if (match := re.fullmatch(pattern, name))}
    if not chosen:
        raise MeasureError(f"no test measured {pattern}")
    return chosen


# ---- the protocol -------------------------------------------------------------------------------------------------


def _exchange(names: set[str], rounds: int, quick: bool) -> list[Row]:
    """The benchmark moves the same samples in turns by the exchange, by one bare QUIC stream and by TLS over TCP."""
    runs = go_bench(PEER, "^BenchmarkExchange$", rounds, "1s" if quick else "5s")["Exchange"]
    bare, tls = [run["of-bare-QUIC"] for run in runs], [run["of-TLS/TCP"] for run in runs]
    cpu = [run["exchange-cpu-s/GB"] for run in runs]
    speeds = max(run["exchange-MB/s"] for run in runs)
    note = f"samples of 110 KiB on loopback, both ends in one process; at best {speeds:.0f} MB/s"
    less = [run["bare-QUIC-cpu-s/GB"] / run["exchange-cpu-s/GB"] for run in runs]
    rows = [
        at_least("exchange-quic", bare, "x bare QUIC", 0.9, note),
        at_least(
            "exchange-quic-tls", tls, "x TLS+TCP", 0.17, "aim 0.27; the exchange over TLS on TCP, its protocol included"
        ),
        absolute("exchange-quic-cpu", cpu, "CPU s/GB", "<= 10 (aim 7)", 10, "both ends together"),
    ]
    rows[0].of_cpu = median(less)
    return [row for row in rows if row.name in names]


# ---- traffic ------------------------------------------------------------------------------------------------------


def _shares(found: Found, mode: str, what: str) -> dict[int, float]:
    """Return by the number of nodes what a mode's epoch had."""
    return {int(nodes): all_[0] for nodes, all_ in values(found, rf"traffic/{mode}/nodes=(\d+)/{what}").items()}


def _local(found: Found, divisible: bool) -> tuple[dict[int, float], dict[int, float], str, str]:
    """Return, by nodes, what crosses beyond the structural share, and the paper's bound; the worst as words."""
    structural, paper = _shares(found, "local", "structural"), _shares(found, "local", "paper")
    shares = {p: share for p, share in _shares(found, "local", "share").items() if (structural[p] == 0) == divisible}
    if not shares:
        raise MeasureError("no such number of nodes was tested")
    beyond = {p: share - structural[p] for p, share in shares.items()}
    words = ", ".join(
        f"{p} nodes {share:.2f} %" + ("" if divisible else f" ({structural[p]:.2f} % structural)")
        + f", paper {paper[p]:.1f} %"
        for p, share in sorted(shares.items())
    )  # fmt: skip
    return beyond, paper, words, "64 partitions, batches of 64 a node"


def _local_row(name: str, found: Found, divisible: bool) -> Row:
    beyond, paper, words, world = _local(found, divisible)
    worst = max(beyond, key=lambda p: beyond[p])
    unit = "% crossed" if divisible else "% beyond"
    row = absolute(name, list(beyond.values()), unit, "<= 1.2", 1.2, f"{world}; {VIRTUAL}; {words}")
    # The bound is of what crosses in all, so it is no reference for what is beyond the structural share alone.
    row.measured = beyond[worst]
    if divisible:
        row.against, row.reference = "paper's bound", paper[worst]
    return row


def _middle(name: str, found: Found) -> Row:
    structural = _shares(found, "local", "structural")
    crossed = {p: size for p, size in _shares(found, "local", "middle").items() if structural[p] == 0}
    nodes = ", ".join(str(p) for p in sorted(crossed))
    return _worst(name, list(crossed.values()), "bytes", "<= 0", 0, f"{nodes} nodes, the middle half of the epoch")


def _uniform(name: str, found: Found) -> Row:
    shares = _shares(found, "uniform", "share")
    off = [abs(share - 100 * (p - 1) / p) for p, share in shares.items()]
    words = ", ".join(f"{p} nodes {share:.2f} %" for p, share in sorted(shares.items()))
    return _worst(name, off, "% off (p-1)/p", "<= 1", 1, words)


# ---- the rest -----------------------------------------------------------------------------------------------------


def _worst(name: str, found: list[float], unit: str, target: str, bound: float, note: str, scale: float = 1) -> Row:
    """Return the row of the highest value: a bound holds for all cases or does not hold."""
    row = absolute(name, [scale * value for value in found], unit, target, bound, f"{VIRTUAL}; {note}")
    row.measured = scale * max(found)
    return row


def _waits(*faults: str) -> Callable[[str, Found], Row]:
    def row(name: str, found: Found) -> Row:
        each = values(found, f"waits/({'|'.join(faults)})")
        slow = "slow" in faults
        bound = 5000 if slow else 150
        words = ", ".join(f"{fault.replace('-', ' ')} {1e3 * max(waits):.0f} ms" for fault, waits in each.items())
        note = (
            f"the longest that a survivor of 3 nodes waited for peers in an epoch, at any moment of the fault: {words}"
        )
        waits = [wait for all_ in each.values() for wait in all_]
        return _worst(name, waits, "ms waited", f"<= {bound}", bound, note, 1e3)

    return row


def _resident(name: str, found: Found) -> Row:
    each = [share for shares in values(found, r"resident/(\d/nodes=\d+)").values() for share in shares]
    row = at_least(name, each, "% in time", 97, f"{VIRTUAL}; 3, 5 and 6 nodes, local and uniform, 5 ms between them")
    row.measured = min(each)
    return row


def _boundary(name: str, found: Found) -> Row:
    each = values(found, "boundary/quic=(true|false)")
    took = [one for all_ in each.values() for one in all_]
    return _worst(
        name, took, "ms", "<= 20", 20, "3 nodes, the longest of their ranks, over QUIC with 5 ms of delay, too"
    )


def _receiver(name: str, found: Found) -> Row:
    held = [one for all_ in values(found, r"receiver/nodes=(\d+)/held").values() for one in all_]
    mapped = max(one for all_ in values(found, r"receiver/nodes=(\d+)/mapped").values() for one in all_)
    note = (
        f"come and not taken, with 1, 3 and 7 peers that have all samples ready; mapped {mapped:.2f}; "
        "32 KiB for each open stream beside it"
    )
    return _worst(name, held, "x credit x largest", "<= 1", 1, note)


def _reads(name: str, found: Found) -> Row:
    reads = values(found, "reads/nodes=(8)")["8"]
    return _worst(name, reads, "reads/chunk", "<= 1", 1, "all of 8 nodes, first epoch, over QUIC, with 1 % loss, too")


TRAFFIC, FAULTS = "TestTraffic", "TestNodesThatFail|TestFaultsOverQUIC"
ROWS = (
    Virtual("nodes-local-middle", NODE, TRAFFIC, _middle),
    Virtual("nodes-local", NODE, TRAFFIC, lambda name, found: _local_row(name, found, True)),
    Virtual("nodes-local-rest", NODE, TRAFFIC, lambda name, found: _local_row(name, found, False)),
    Virtual("nodes-uniform", NODE, TRAFFIC, _uniform),
    Virtual("nodes-killed", NODE, FAULTS, _waits("killed", "killed-silently", "cut-off-quic")),
    Virtual("nodes-frozen", NODE, FAULTS, _waits("frozen", "frozen-quic")),
    Virtual("nodes-slow", NODE, FAULTS, _waits("slow", "slow-quic")),
    Virtual("nodes-resident", NODE, "TestSamplesAreThereBeforeTheyAreAskedFor", _resident),
    Virtual("nodes-boundary", NODE, "TestEpochsFollowAtOnce", _boundary),
    Virtual("nodes-reads", NODE, "TestOverQUIC", _reads),
    Virtual("nodes-receiver", PEER, "TestReceiverHoldsItsCreditOnly", _receiver),
)
NAMES = (*EXCHANGE, *(it.name for it in ROWS))
