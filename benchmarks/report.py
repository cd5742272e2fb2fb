#!/usr/bin/env python3
"""Write what `epoch.py` stored into the README and a page of docs, in place of what an earlier run left there.

    python benchmarks/report.py benchmarks/results/epoch.json

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
from harness.report import behind, summary, tables

_PAGE = """# Measured beside others

Written by `make charts` from `benchmarks/results/epoch.json`, what `benchmarks/epoch.py` stored. What every column
means is in [benchmarks/README.md](../benchmarks/README.md), what limits Redox in [performance.md](performance.md);
rates of different runs must not be compared.

{where}

{summary}

*That mixes*: VIF at most 1.5 on data sorted by class. Redox packs shuffled by default, and so it is here.

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
    parser.add_argument("stored", type=Path, help="its JSON file")
    found = json.loads(parser.parse_args().stored.read_text(encoding="utf-8"))
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise SystemExit(f"report.py: README.md has no {BEGIN} ... {END}")
    readme.write_text(f"{before}{BEGIN}\n{summary(found)}\n{mark}{after}", encoding="utf-8")
    (ROOT / "docs" / "measured.md").write_text(_page(found), encoding="utf-8")


def _page(found: dict[str, Any]) -> str:
    machine, busy = found["machine"], found["busy"]["others_percent"]
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    where = (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, Linux {machine['kernel']}, Python "
        f"{machine['python']}, {machine['go']}; {packages}; `{machine['command']}` at commit {machine['commit']}: "
        f"{found['took_s'] / 60:.0f} minutes, of which others used {busy} % of the processor time; {found['rounds']} "
        f"rounds, {found['seconds']:g} s a run."
    )
    charts = sorted((ROOT / "docs" / "charts").glob("*.svg"))
    return _PAGE.format(
        where=textwrap.fill(where, 120), summary=summary(found), behind=behind(found), tables=tables(found),
        charts="\n".join(f"![{path.stem}](charts/{path.name})" for path in charts),
    )  # fmt: skip


if __name__ == "__main__":
    main()
