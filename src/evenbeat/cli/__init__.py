"""The ``evenbeat`` command. Each subcommand is imported when it is called."""

import sys


def main() -> None:
    """Run the console script."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal or pipe that can't show a character gets "?", not a traceback.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    from evenbeat.cli.root import root

    root(prog_name="evenbeat")
