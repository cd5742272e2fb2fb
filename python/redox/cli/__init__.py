"""The command `redox`. One module per subcommand, each with `add(parsers)` and `run(args)`; `main` in `command.py`."""

from .command import main

__all__ = ["main"]
