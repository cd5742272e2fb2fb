#!/usr/bin/env python3
"""Draw the charts of README and docs from what `epoch.py`, `curve.py` and `growth.py` stored: SVG and PNG, readable
without colour.

    python benchmarks/chart.py benchmarks/results/*.json --to docs/charts

Needs matplotlib, which the development environment has.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from harness.data import IMAGES, SMALL, VARIED
from harness.report import joined
from harness.slow import STORES

GREY = "0.75"
LIMITS = {"parallel": 200e6, "disk": 150e6}  # bytes a second
MARKS = "osD^vP*X<>hd"
LINES = {"plan": "samples", "index": "chunks", "nodes": "nodes", "workers": "workers"}


def main() -> None:
    """Draw whatever the given files have."""
    parser = argparse.ArgumentParser(description="Draw charts from what epoch.py, curve.py and growth.py stored.")
    parser.add_argument("results", type=Path, nargs="+", help="their JSON files")
    parser.add_argument("--to", type=Path, default=Path("docs/charts"), help="the folder (docs/charts)")
    options = parser.parse_args()
    options.to.mkdir(parents=True, exist_ok=True)
    plt.rcParams |= {
        "font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.fonttype": "none",
        "svg.hashsalt": "redox",
    }  # fmt: skip
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in options.results]
    measured = joined(runs)["rows"]
    for shape in (SMALL, VARIED, IMAGES):
        for store in STORES:
            rows = [row for row in measured if row["shape"] == shape.name and row["store"] == store.name]
            rows = [row for row in rows if "rate" in row["summary"]]
            if rows:
                _bars(rows, f"{shape.name}: {store.words}", shape.size, options.to / f"{shape.name}-{store.name}")
                _mixed(rows, f"{shape.name}: {store.words}", options.to / f"{shape.name}-{store.name}-mixing")
    for run in runs:
        for name, lines in run.get("growth", {}).items():
            _growth(lines, name, options.to / f"growth-{name}")
        if "curve" in run:
            _curve(run["curve"], measured, options.to / "curve")


def _bars(rows: list[dict[str, Any]], title: str, size: int, to: Path) -> None:
    """Samples a second of each loader; Redox dark, what is packed in the classes' order hatched."""
    rows = sorted(rows, key=lambda row: row["summary"]["rate"])
    figure, axes = plt.subplots(figsize=(7, 0.6 + 0.24 * len(rows)))
    for place, row in enumerate(rows):
        it = row["summary"]
        own, in_order = row["title"].startswith("Redox"), row["packed"] and not row["shuffled"]
        axes.barh(
            place, it["rate"], color="0.25" if own else GREY, hatch="///" if in_order else "", edgecolor="white",
            xerr=[[it["rate"] - it["low"]], [it["high"] - it["rate"]]], error_kw={"lw": 0.8},
        )  # fmt: skip
        axes.text(it["high"], place, f"  {it['rate']:,.0f}", va="center", fontsize=7)
    axes.set_yticks(range(len(rows)), [_label(row) for row in rows])
    limit = LIMITS.get(rows[0]["store"], 0) / size
    if limit:
        axes.axvline(limit, color="black", lw=0.8, ls="--")
        axes.text(limit, -0.9, "limit ", ha="right", fontsize=7)
    axes.set_xlabel("samples/s, median and range of the rounds; hatched: packed in the order of the classes")
    axes.set_title(title, loc="left", fontsize=9)
    _save(figure, to)


def _mixed(rows: list[dict[str, Any]], title: str, to: Path) -> None:
    """Mixing against speed, where both are known; the best corner is at the lower right."""
    rows = [row for row in rows if "vif" in row["properties"]]
    if len(rows) < 2:
        return
    figure, axes = plt.subplots(figsize=(7, 4))
    titles = list(dict.fromkeys(row["title"] for row in rows))
    for row in rows:
        full = row["shuffled"] or not row["packed"]
        axes.plot(
            row["summary"]["rate"], row["properties"]["vif"], MARKS[titles.index(row["title"]) % len(MARKS)],
            color="black", mfc="black" if full else "white", label=_label(row),
        )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="samples/s", ylabel="VIF on class-sorted data (1: full shuffle)")
    axes.axhline(1, color=GREY, lw=0.8)
    axes.legend(fontsize=7, frameon=False, bbox_to_anchor=(1, 1), loc="upper left")
    axes.set_title(title, loc="left", fontsize=9)
    _save(figure, to)


def _curve(points: list[dict[str, float]], rows: list[dict[str, Any]], to: Path) -> None:
    """Mixing against speed on the disk, packed class after class: a line for each chunk size, and the other loaders."""
    figure, axes = plt.subplots(figsize=(7, 4))
    for number, mib in enumerate(dict.fromkeys(point["chunk MiB"] for point in points)):
        line = [point for point in points if point["chunk MiB"] == mib]
        axes.plot(
            [point["samples/s"] for point in line], [point["VIF"] for point in line], f"{MARKS[number]}-",
            color="black", lw=0.8, ms=5, label=f"Redox, chunks of {mib:.0f} MiB",
        )  # fmt: skip
        for point in line:
            axes.annotate(f" {point['window']:.0f}", (point["samples/s"], point["VIF"]), fontsize=6)
    others = [
        row for row in rows
        if row["shape"] == VARIED.name and row["store"] == "disk" and not row["shuffled"]
        and not row["title"].startswith("Redox") and "vif" in row["properties"] and "rate" in row["summary"]
    ]  # fmt: skip
    for number, row in enumerate(others):
        axes.plot(
            row["summary"]["rate"], row["properties"]["vif"], MARKS[number], color=GREY, mec="black", ms=8,
            label=_label(row),
        )  # fmt: skip
    axes.axvline(LIMITS["disk"] / VARIED.size, color="black", lw=0.8, ls="--")
    axes.axhline(1, color=GREY, lw=0.8)
    axes.set(
        yscale="log", xlim=(0, None), xlabel="samples/s on the emulated disk; the number is the window, in chunks",
        ylabel="VIF (1: full shuffle)",
    )  # fmt: skip
    axes.legend(fontsize=7, frameon=False, bbox_to_anchor=(1, 1), loc="upper left")
    axes.set_title("110KB, packed class after class, emulated disk", loc="left", fontsize=9)
    _save(figure, to)


def _growth(lines: list[dict[str, float]], name: str, to: Path) -> None:
    """Every column over the size, each in a panel of its own."""
    over = LINES[name]
    columns = [column for column in lines[0] if column != over]
    figure, panels = plt.subplots(1, len(columns), figsize=(3.2 * len(columns), 2.6), squeeze=False)
    for axes, column in zip(panels[0], columns, strict=True):
        axes.plot([line[over] for line in lines], [line[column] for line in lines], "ko-", ms=4, lw=1)
        axes.set(xscale="log", xlabel=over, title=column)
        if column in ("B", "MiB"):
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
    _save(figure, to)


def _label(row: dict[str, Any]) -> str:
    order = "" if not row["packed"] else ", shuffled" if row["shuffled"] else ", in order"
    workers = row["summary"]["workers"]
    return f"{row['title']}{order} [{workers}]"


def _save(figure: Any, to: Path) -> None:
    figure.tight_layout()
    figure.savefig(to.with_suffix(".svg"), metadata={"Date": None}, bbox_inches="tight")
    figure.savefig(to.with_suffix(".png"), dpi=130, bbox_inches="tight")
    plt.close(figure)


if __name__ == "__main__":
    main()
