"""The check of the settings of a server."""

from __future__ import annotations

from collections.abc import Iterator

from evenbeat.doctor.findings import Finding
from evenbeat.stores.base import Setting


def safety_findings(settings: list[Setting]) -> Iterator[Finding]:
    """Yield a finding for each setting of the server that is not safe, and one for all the others."""
    for setting in settings:
        if setting.level != "ok":
            yield Finding(
                check="safety",
                level=setting.level,
                message=f"{setting.name} {setting.value}",
                hint=setting.hint,
                facts={setting.name: setting.value},
            )
    fine = [setting for setting in settings if setting.level == "ok"]
    if fine:
        yield Finding(
            check="safety",
            level="ok",
            message=", ".join(f"{setting.name} {setting.value}" for setting in fine),
            facts={setting.name: setting.value for setting in fine},
        )
