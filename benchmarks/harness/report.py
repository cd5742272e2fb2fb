"""The tables of `epoch.py`, from what it stored."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

from harness.rivals import TITLES
from harness.slow import STORES
from harness.table import aligned, number

RATES = (
    "loader", "samples/s", "spread", "workers", "Redox is", "CPU s/10k", "first batch s", "memory MiB", "opens/sample",
    "reads/sample", "read/given",
)  # fmt: skip
SUMMARY = ("samples, storage", "Redox, samples/s", "times as many as others, however these are packed")
PROPERTIES = ("loader", "VIF", "order stable", "resume", "with fewer workers", "left after kill -9", "amiss")


def joined(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the rows of several runs together; those of a shape on a store are the last run's that has any.

    They are compared with each other, so they must be of one run. What is no rate may be an earlier run's: a row that
    was measured with `--rates` has none.
    """
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    properties: dict[str, dict[str, Any]] = {}
    for run in runs:
        measured = [row for row in run.get("rows", []) if row["runs"] or row["note"]]
        properties |= {row["name"]: row["properties"] for row in measured if row["properties"]}
        for group in {(row["shape"], row["store"]) for row in measured}:
            groups[group] = [row for row in measured if (row["shape"], row["store"]) == group]
    rows = [row for rows in groups.values() for row in rows]
    return {"rows": [row | {"properties": properties.get(row["name"], {})} for row in rows]}


def tables(found: dict[str, Any]) -> str:
    """Return Markdown: a table of rates for each shape and store, and one of properties for each shape."""
    parts = []
    for shape in dict.fromkeys(row["shape"] for row in found["rows"]):
        for store in STORES:
            rows = [row for row in found["rows"] if row["shape"] == shape and row["store"] == store.name]
            if rows:
                parts.append(f"### {shape}, {store.words}\n\n{_rates(rows)}")
        seen: dict[str, dict[str, Any]] = {}
        for row in found["rows"]:
            if row["shape"] == shape and row["properties"]:
                seen.setdefault(_loader(row), row["properties"])
        if seen:
            parts.append(f"### {shape}, what is no rate\n\n{_properties(seen)}")
    return "\n\n".join(parts)


def summary(found: dict[str, Any]) -> str:
    """Return Markdown: for each shape and store how many times as fast Redox is, packed shuffled as by default."""
    lines = []
    for shape in dict.fromkeys(row["shape"] for row in found["rows"]):
        for store in STORES:
            rows = [row for row in found["rows"] if row["shape"] == shape and row["store"] == store.name]
            rows = [row for row in rows if "rate" in row["summary"]]
            others = [row for row in rows if not row["title"].startswith("Redox")]
            for own in rows:
                if own["title"].startswith("Redox") and own["shuffled"] and others:
                    lines.append(_summed_up(own, others, store.words))
    return aligned(SUMMARY, lines)


def _summed_up(own: dict[str, Any], others: list[dict[str, Any]], store: str) -> tuple[str, ...]:
    options = TITLES[own["title"]].words
    best: dict[str, float] = {}
    for row in others:
        ratio = ratio_of(own, row)
        if ratio:
            best[row["title"]] = min(ratio, best.get(row["title"], ratio))
    words = ", ".join(f"{title} {number(ratio)} x" for title, ratio in sorted(best.items(), key=lambda it: it[1]))
    what = ", ".join(filter(None, (own["shape"], options, store)))
    return what, number(own["summary"]["rate"]), words


def ratio_of(own: dict[str, Any], other: dict[str, Any]) -> float | None:
    """Return how many times as fast one row is as another, median of the rounds."""
    pairs = zip(rounds(own), rounds(other), strict=False)
    return median([mine / its for mine, its in pairs] or [0]) or None


def behind(found: dict[str, Any]) -> str:
    """Return a Markdown list of the rows that are faster than Redox, packed in the same order, with its defaults."""
    lines = []
    for row in found["rows"]:
        rows = [it for it in found["rows"] if it["store"] == row["store"]]
        ratio = against(rows, row)
        if ratio is not None and ratio < 1 and not row["title"].startswith("Redox"):
            lines.append(f"- {row['name']}: Redox is {number(ratio)} x")
    return "\n".join(lines) or "- none"


def against(rows: list[dict[str, Any]], row: dict[str, Any]) -> float | None:
    """Return how many times as fast Redox is, packed in the same order, with its defaults: median of the rounds."""
    order = row["shuffled"] if row["packed"] else True
    for own in rows:
        same = own["shape"] == row["shape"] and own["store"] == row["store"] and own["shuffled"] == order
        if own["title"] == "Redox" and same and own is not row:
            return ratio_of(own, row)
    return None


def rounds(row: dict[str, Any]) -> list[float]:
    """Return the rates of a row's rounds, with the best number of workers."""
    workers = row["summary"].get("workers")
    return [run["rate"] for run in row["runs"] if run["workers"] == workers and not run.get("void")]


def _loader(row: dict[str, Any]) -> str:
    if not row["packed"]:
        return str(row["title"])
    return f"{row['title']}, {'shuffled' if row['shuffled'] else 'in order'}"


def _rates(rows: list[dict[str, Any]]) -> str:
    lines: list[tuple[str, ...]] = []
    notes = []
    for row in rows:
        it = row["summary"]
        if "rate" not in it:
            lines.append((_loader(row), *["-"] * (len(RATES) - 1)))
            notes.append(f"- {_loader(row)}: {it['note']}")
            continue
        ratio = against(rows, row)
        memory = row["properties"].get("memory_mib", {}).get(str(it["workers"]))
        lines.append((
            _loader(row), number(it["rate"]), f"{number(it['low'])}..{number(it['high'])}", str(it["workers"]),
            f"{number(ratio)} x" if ratio else "-", number(it["cpu_10k"]), number(it["first_s"]), number(memory),
            number(it.get("opens")), number(it.get("reads")), number(it.get("bytes")),
        ))  # fmt: skip
        if row["tried"]:
            tried = ", ".join(f"{count}: {number(rate)}" for count, rate in row["tried"].items())
            notes.append(f"- {_loader(row)}: readers tried {tried}")
        if it.get("off", 1) > 1.02:
            notes.append(f"- {_loader(row)}: the emulator waited up to {it['off']:.3f} x what it wanted")
        if row["note"]:
            notes.append(f"- {_loader(row)}: {row['note']}")
    return "\n".join([aligned(RATES, lines), "", *notes]).rstrip()


def _properties(seen: dict[str, dict[str, Any]]) -> str:
    lines = []
    for loader, it in seen.items():
        amiss = [f"{name.removeprefix('amiss ')}: {words}" for name, words in it.items() if "amiss" in name]
        amiss += [f"{name}: {words}"[:90] for name, words in it.items() if name.startswith("failed")]
        lines.append((
            loader, number(it.get("vif")), _word(it, "order_stable", lambda yes: "yes" if yes else "no"),
            _word(it, "resume", str), _word(it, "resume_other_workers", str),
            _word(it, "left", lambda left: ", ".join(f"{n} {what}" for what, n in left.items()) or "nothing"),
            "; ".join(amiss) or "-",
        ))  # fmt: skip
    return aligned(PROPERTIES, lines)


def _word(it: dict[str, Any], name: str, say: Callable[[Any], str]) -> str:
    return say(it[name]) if name in it else "-"
