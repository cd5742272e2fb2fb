"""`python -m redox`: the same as the command `redox`."""

import sys

from redox.cli import main

if __name__ == "__main__":
    sys.exit(main())
