"""Rows that the core's own benchmarks and tests measure: the plan's speed and memory, allocations."""

from __future__ import annotations

import re
import subprocess

from harness.machine import ROOT
from harness.place import MeasureError
from harness.table import Row, absolute, skipped

PLAN = "./golib/internal/plan"
NAMES = ("plan-walk", "plan-opens", "plan-memory", "plan-billion", "allocations")


def go_test(*arguments: str, fails: bool = False) -> tuple[str, str]:
    """Run `go test` and return what it printed, and why it failed; that is empty where it passed.

    Args:
        *arguments: Of the command.
        fails: Whether it may fail.

    Raises:
        MeasureError: It failed and may not.
    """
    try:
        done = subprocess.run(["go", "test", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise MeasureError("go is not on PATH") from None
    why = (done.stdout + done.stderr).strip().splitlines()[-1] if done.returncode else ""
    if why and not fails:
        raise MeasureError(why)
    return done.stdout, why


def metrics(output: str) -> dict[str, list[dict[str, float]]]:
    """Return what `go test -bench` printed: by benchmark, for each count, values by unit."""
    found: dict[str, list[dict[str, float]]] = {}
    for line in output.splitlines():
        match = re.match(r"Benchmark(\S+?)(?:-\d+)?\s+\d+\s+(.*)", line)
        if match:
            parts = match[2].split()
            values = {unit: float(value) for value, unit in zip(parts[::2], parts[1::2], strict=False)}
            found.setdefault(match[1], []).append(values)
    return found


def measure(names: set[str], rounds: int, quick: bool) -> list[Row]:
    """Return the chosen rows."""
    rows = []
    for name in NAMES:
        if name in names:
            try:
                rows.append(_allocations() if name == "allocations" else _plan(name, rounds, quick))
            except MeasureError as error:
                rows.append(skipped(name, "", str(error)))
    return rows


def _plan(name: str, rounds: int, quick: bool) -> Row:
    if name == "plan-walk":
        found = _bench("^BenchmarkWalk$/samples=390/window=128$", rounds, "300ms" if quick else "1s")
        return absolute(name, [one["ns/sample"] for one in found], "ns/sample", "<= 60 (aim 40)", 60, "one core")
    if name == "plan-opens":
        found = _bench("^BenchmarkOpens$/samples=390$", rounds, "300ms" if quick else "1s")
        return absolute(
            name, [one["ns/sample"] for one in found], "ns/sample", "<= 60", 60, "the order of reading alone"
        )
    if name == "plan-memory":
        found = _bench("^BenchmarkBillion$/^opens$", 1, "1x")
        return absolute(name, [one["B/chunk"] for one in found], "B/chunk", "<= 64", 64, "2.6 million chunks")
    found = _bench("^BenchmarkBillion$/^walk$", 1, "1x")
    return absolute(
        name, [one["ns/op"] / 1e9 for one in found], "s", "<= 60", 60, "every position of 10^9 samples, 60 ns each"
    )


def go_bench(package: str, pattern: str, count: int, duration: str) -> dict[str, list[dict[str, float]]]:
    """Run Go benchmarks and return what they print; see `metrics`."""
    output, _ = go_test("-run", "^$", "-bench", pattern, "-benchtime", duration, "-count", str(count), package)
    found = metrics(output)
    if not found:
        raise MeasureError(f"no benchmark {pattern}")
    return found


def _bench(pattern: str, count: int, duration: str) -> list[dict[str, float]]:
    return [value for values in go_bench(PLAN, pattern, count, duration).values() for value in values]


def _allocations() -> Row:
    """The tests fail where the hot path allocates by the sample; a test that does not run proves nothing."""
    pattern = "Alloc"
    output, _ = go_test("-count", "1", "-v", "-run", pattern, "./golib/...")
    passed = re.findall(r"^--- PASS: (\S+)", output, re.MULTILINE)
    if not passed:
        raise MeasureError("no allocation test ran")
    return absolute("allocations", [0.0], "/sample", "<= 0", 0, "by the tests " + ", ".join(passed))
