"""``evenbeat tenants``: the tenants of a store, and their quotas."""

from __future__ import annotations

from evenbeat.cli.groups import Lazy, lazy_group

command = lazy_group(
    "tenants",
    "List, show and purge tenants, and set their quotas.",
    {
        "list": Lazy("evenbeat.cli.commands.tenants.list", "List the tenants of the store, with counts."),
        "show": Lazy("evenbeat.cli.commands.tenants.show", "Show one tenant: its counts, quota and limits."),
        "quota": Lazy("evenbeat.cli.commands.tenants.quota", "Set, replace or remove the quota of a tenant."),
        "purge": Lazy("evenbeat.cli.commands.tenants.purge", "Delete everything of a tenant."),
    },
)
