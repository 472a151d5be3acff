"""Alert rules and channels that code or a file declares. A node writes them when it starts."""

from __future__ import annotations

from evenbeat.app.alerts.channels import write_channel
from evenbeat.app.alerts.named import NamedRecords
from evenbeat.app.alerts.rules import write_rule
from evenbeat.errors import InvalidValue, shown
from evenbeat.rules.alert_records import StoredChannel, StoredRule


class DeclaredAlerts:
    """What was declared here, kept until it is written. Keeping it does not open the store."""

    def __init__(self, rules: NamedRecords[StoredRule], channels: NamedRecords[StoredChannel]) -> None:
        self._rules = rules
        self._channels = channels
        self._wanted_channels: dict[tuple[str | None, str], StoredChannel] = {}
        self._wanted_rules: dict[tuple[str | None, str], StoredRule] = {}

    def keep_channel(self, owner: str | None, name: str, wanted: StoredChannel) -> None:
        """Keep a channel. A file overrides the code; a second declaration by the same is refused."""
        if _replaces(self._wanted_channels.get((owner, name)), wanted, name):
            self._wanted_channels[owner, name] = wanted

    def keep_rule(self, owner: str | None, name: str, wanted: StoredRule) -> None:
        """Keep a rule, as ``keep_channel`` does."""
        if _replaces(self._wanted_rules.get((owner, name)), wanted, name):
            self._wanted_rules[owner, name] = wanted

    def write(self) -> None:
        """Create everything that was declared, or update it to match: channels before the rules that name
        them. ``InvalidValue`` names the rule."""
        for (owner, name), channel in self._wanted_channels.items():
            write_channel(self._channels, owner, name, channel)
        for (owner, name), rule in self._wanted_rules.items():
            try:
                write_rule(self._rules, self._channels, owner, name, rule)
            except InvalidValue as error:
                where = "a file" if rule.managed_by == "config" else "the code"
                problem = f"alert rule {shown(name)}, which {where} declares: {error.problem}"
                raise InvalidValue(problem, field=error.field, value=error.value, hint=error.hint) from None


def _replaces(
    present: StoredRule | StoredChannel | None, wanted: StoredRule | StoredChannel, name: str
) -> bool:
    if present is not None and present.managed_by == wanted.managed_by:
        word = "rule" if isinstance(wanted, StoredRule) else "channel"
        raise InvalidValue(
            f"name {shown(name)} is that of an alert {word} that was declared before",
            field="name",
            value=name,
            hint="give the second one another name",
        )
    return present is None or wanted.managed_by == "config"
