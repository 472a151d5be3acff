"""The layout of ``--help``. Without rich, which takes as long to import as everything else."""

from __future__ import annotations

import click


class Help(click.HelpFormatter):
    """click's layout with headings that stand out in a terminal."""

    def write_heading(self, heading: str) -> None:
        super().write_heading(click.style(heading, bold=True))

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(click.style(prog, bold=True), args, prefix)
