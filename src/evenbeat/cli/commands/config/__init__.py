"""``evenbeat config``."""

from evenbeat.cli.groups import Lazy, lazy_group

command = lazy_group(
    "config",
    "Show the settings and where they come from.",
    {"show": Lazy("evenbeat.cli.commands.config.show", "Show each setting and where it was set.")},
)
