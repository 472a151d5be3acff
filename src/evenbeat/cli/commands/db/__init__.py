"""``evenbeat db``."""

from evenbeat.cli.groups import Lazy, lazy_group

command = lazy_group(
    "db",
    "Create or upgrade the tables of the store.",
    {"upgrade": Lazy("evenbeat.cli.commands.db.upgrade", "Create or upgrade the tables; safe to repeat.")},
)
