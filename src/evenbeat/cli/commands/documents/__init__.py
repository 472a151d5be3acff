"""``evenbeat documents``."""

from evenbeat.cli.groups import Lazy, lazy_group

command = lazy_group(
    "documents",
    "Process documents of a collection or table that you have.",
    {
        "run": Lazy(
            "evenbeat.cli.commands.documents.run", "Run a processor: process the documents that are due."
        )
    },
)
