"""What `targets.py` is made of: a place to work in, data, measured children, rows and their table."""

import sys
from pathlib import Path

# This tree's package, whatever else is installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
