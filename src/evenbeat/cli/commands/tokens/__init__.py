"""``evenbeat tokens``: access tokens of the REST API."""

from __future__ import annotations

from evenbeat.cli.groups import Lazy, lazy_group

command = lazy_group(
    "tokens",
    "Create, list and revoke access tokens of the REST API.",
    {
        "create": Lazy("evenbeat.cli.commands.tokens.create", "Create a token, and print its secret once."),
        "list": Lazy("evenbeat.cli.commands.tokens.list", "List the tokens that work, by their last use."),
        "revoke": Lazy("evenbeat.cli.commands.tokens.revoke", "Revoke a token."),
    },
)
