"""Rows of the table of targets: what was measured, against what, and whether that is enough."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any


@dataclass
class Row:
    """One line of the table.

    Attributes:
        name: What `--only` chooses by.
        measured: The value itself, None where it could not be measured.
        unit: Its unit.
        against: What it is compared with, in words; empty where the target is absolute.
        reference: The value of that, measured in the same run.
        ratio: Median over the rounds of measured / reference, each ratio taken within one round.
        of_cpu: As ratio, but of samples per second of processor time, which other work on the machine hardly changes;
            where it is above the ratio, the loader waited.
        target: In words, like ">= 0.8".
        bound: The target's number.
        at_most: Whether the bound is an upper one.
        spread: Lowest and highest value (ratio, where there is one) of the rounds.
        note: What a reader must know; the reason where it was skipped.
    """

    name: str
    measured: float | None
    unit: str
    target: str
    bound: float
    at_most: bool = False
    against: str = ""
    reference: float | None = None
    ratio: float | None = None
    spread: tuple[float, float] | None = None
    of_cpu: float | None = None
    note: str = ""
    rounds: list[dict[str, float]] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """pass, FAIL, or skipped."""
        value = self.ratio if self.ratio is not None else self.measured
        if value is None:
            return "skipped"
        held = value <= self.bound if self.at_most else value >= self.bound
        return "pass" if held else "FAIL"

    def to_json(self) -> dict[str, Any]:
        """All attributes and the verdict."""
        return {**asdict(self), "verdict": self.verdict}


def compare(
    name: str,
    pairs: list[tuple[float, float]],
    unit: str,
    against: str,
    bound: float,
    note: str = "",
    of_cpu: list[float] | None = None,
) -> Row:
    """Return the row of a rate that must be at least `bound` times another one; one pair for each round."""
    ratios = [mine / other for mine, other in pairs]
    return Row(
        name, median(mine for mine, _ in pairs), unit, f">= {bound:g} x", bound, against=against,
        reference=median(other for _, other in pairs), ratio=median(ratios), spread=(min(ratios), max(ratios)),
        note=note, of_cpu=median(of_cpu) if of_cpu else None,
        rounds=[{"measured": mine, "reference": other} for mine, other in pairs],
    )  # fmt: skip


def absolute(name: str, values: list[float], unit: str, target: str, at_most: float, note: str = "") -> Row:
    """Return the row of a value that must not exceed a bound."""
    return Row(
        name, median(values), unit, target, at_most, at_most=True, spread=(min(values), max(values)), note=note,
        rounds=[{"measured": value} for value in values],
    )  # fmt: skip


def at_least(name: str, values: list[float], unit: str, bound: float, note: str = "") -> Row:
    """Return the row of a value that must reach a bound."""
    return Row(
        name, median(values), unit, f">= {bound:g}", bound, spread=(min(values), max(values)), note=note,
        rounds=[{"measured": value} for value in values],
    )  # fmt: skip


def skipped(name: str, target: str, why: str) -> Row:
    """Return the row of what could not be measured here."""
    return Row(name, None, "", target, 0, note=why)


def number(value: float | None) -> str:
    """Write a value so that it can be compared by eye."""
    if value is None:
        return "-"
    if abs(value) >= 10_000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


HEADINGS = ("row", "measured", "unit", "against", "reference", "ratio", "spread", "of CPU", "target", "verdict")


def cells(row: Row) -> tuple[str, ...]:
    """Return a row's text by column."""
    spread = f"{number(row.spread[0])}..{number(row.spread[1])}" if row.spread else "-"
    return (
        row.name, number(row.measured), row.unit, row.against or "-", number(row.reference), number(row.ratio), spread,
        number(row.of_cpu),        row.target, row.verdict,
    )  # fmt: skip


def markdown(rows: list[Row]) -> str:
    """Return the table, aligned, as Markdown; the notes below it."""
    notes = [f"- {row.name}: {row.note}" for row in rows if row.note]
    return "\n".join([aligned(HEADINGS, [cells(row) for row in rows]), "", *notes])


def aligned(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a table as Markdown whose columns are as wide as what is in them."""
    lines = [headings, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    lines.insert(1, tuple("-" * width for width in widths))
    return "\n".join(
        "| " + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) + " |" for line in lines
    )
