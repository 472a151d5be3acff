"""``evenbeat db``."""

from evenbeat.cli.groups import Lazy, lazy_group

command = lazy_group(
    "db",
    "Make the database, or bring it up to date.",
    {"upgrade": Lazy("evenbeat.cli.commands.db.upgrade", "Make or upgrade the tables; safe to repeat.")},
)
