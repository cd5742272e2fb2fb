"""The second implementations beside the golden files, which share no code with the library, agree with them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

GOLDEN = Path(__file__).parent.parent / "golden"


def test_plans() -> None:
    done = subprocess.run(
        [sys.executable, GOLDEN / "plan" / "reference.py"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 of 7" in done.stdout
