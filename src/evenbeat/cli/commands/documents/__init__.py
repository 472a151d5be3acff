"""``evenbeat documents``."""

from evenbeat.cli.groups import Lazy, lazy_group

command = lazy_group(
    "documents",
    "Process documents of a collection or table you have.",
    {
        "run": Lazy(
            "evenbeat.cli.commands.documents.run", "Run a processor: handle the documents that are due."
        )
    },
)
