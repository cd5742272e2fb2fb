#!/usr/bin/env python3
"""Write what `epoch.py` stored into the README and a page of docs, in place of what an earlier run left there.

    python benchmarks/report.py benchmarks/results/*.json

The README gets the summary, between its two `epoch.py` marks; docs/measured.md all tables, the rows in which another
loader is faster, and the charts.
"""

from __future__ import annotations

import argparse
import json
import textwrap
from pathlib import Path
from typing import Any

from harness.machine import ROOT
from harness.report import behind, joined, summary, tables

_PAGE = """# Measured beside others

Written by `make charts` from `benchmarks/results`, what `benchmarks/epoch.py` stored in some runs. What every column
means is in [benchmarks/README.md](../benchmarks/README.md), what limits Redox in [performance.md](performance.md);
rates of different runs must not be compared.

{machines}

{summary}

## Where another loader is faster
Packed in the same order as Redox; a loader that is never packed beside Redox packed shuffled.

{behind}

## All rows

{tables}

## Charts

{charts}
"""
BEGIN, END = "<!-- epoch.py -->", "<!-- end of epoch.py -->"


def main() -> None:
    """Write both."""
    parser = argparse.ArgumentParser(description="Write what epoch.py stored into README.md and docs/measured.md.")
    parser.add_argument("stored", type=Path, nargs="+", help="its JSON files, each of some shapes and stores")
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in parser.parse_args().stored]
    runs = [run for run in runs if "rows" in run]  # growth.py stores beside them
    found = joined(runs)
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise SystemExit(f"report.py: README.md has no {BEGIN} ... {END}")
    readme.write_text(f"{before}{BEGIN}\n{summary(found)}\n{mark}{after}", encoding="utf-8")
    charts = sorted((ROOT / "docs" / "charts").glob("*.svg"))
    page = _PAGE.format(
        machines="\n".join(textwrap.fill(_where(run), 120, subsequent_indent="  ") for run in runs),
        summary=summary(found), behind=behind(found), tables=tables(found),
        charts="\n".join(f"![{path.stem}](charts/{path.name})" for path in charts),
    )  # fmt: skip
    (ROOT / "docs" / "measured.md").write_text(page, encoding="utf-8")


def _where(run: dict[str, Any]) -> str:
    machine, busy = run["machine"], run["busy"]["others_percent"]
    stores = dict.fromkeys(f"{row['shape']}/{row['store']}" for row in run["rows"] if row["runs"])
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    return (
        f"- {', '.join(stores)}: {machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, Linux "
        f"{machine['kernel']}, Python {machine['python']}, {machine['go']}; {packages}; commit {machine['commit']}; "
        f"{run['took_s'] / 60:.0f} minutes, of which others used {busy} % of the processor time; {run['rounds']} "
        f"rounds, {run['seconds']:g} s a run"
    )


if __name__ == "__main__":
    main()
