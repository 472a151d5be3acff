"""The local time zone and the current time: the only module of the CLI that reads either."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from datetime import datetime, tzinfo
from pathlib import Path
from typing import NamedTuple

from evenbeat.core.instants import Instant, from_ms
from evenbeat.errors import InvalidValue
from evenbeat.triggers.zones import Zone, read_zone


class LocalZone(NamedTuple):
    """The zone of this machine, with its IANA name if that is known."""

    name: str
    zone: Zone | None

    def show(self, instant: Instant) -> datetime:
        # astimezone(None) asks the operating system, which has rules even without the name of a zone.
        info: tzinfo | None = None if self.zone is None else self.zone.info
        return from_ms(instant).astimezone(info)

    @property
    def tzinfo(self) -> tzinfo:
        """The zone for times without an offset; the current offset if the zone has no name."""
        if self.zone is not None:
            return self.zone.info
        offset = datetime.now().astimezone().tzinfo
        assert offset is not None
        return offset

    def differs_from(self, other: Zone) -> bool:
        if self.zone is None:
            return True
        same_offset = self.zone.fixed is not None and self.zone.fixed == other.fixed
        return self.zone is not other and not same_offset


def now() -> Instant:
    """Return the current second. Milliseconds would make the ticks of ``every`` hard to read."""
    return int(time.time()) * 1000


def own_command() -> str:
    """Return a command that calls this program from the same shell: ``evenbeat`` if that is on the path."""
    called = sys.argv[0]
    if os.path.basename(called) != "evenbeat" or not os.path.isfile(called):
        return f"{shlex.quote(sys.executable)} -m evenbeat"
    found = shutil.which("evenbeat")
    if found is not None and os.path.realpath(found) == os.path.realpath(called):
        return "evenbeat"
    return shlex.quote(called)


def local_zone() -> LocalZone:
    """Return the zone that TZ names, else that of the system."""
    setting = os.environ.get("TZ")
    names = _system_zones() if setting is None else [setting.removeprefix(":") or "UTC"]
    for name in names:
        try:
            zone = read_zone(name)
        except InvalidValue:
            continue  # a rule such as CET-1CEST, or a path
        # Containers are set to Etc/UTC, which everybody calls UTC.
        return LocalZone(zone.key.removeprefix("Etc/") if zone.fixed == 0 else zone.key, zone)
    return LocalZone("local time", None)


def _system_zones(etc: Path = Path("/etc")) -> list[str]:
    """Return candidates, best first. There are none on Windows, whose zones have other names."""
    names: list[str] = []
    if os.name != "posix":
        return names
    link = etc / "localtime"
    if link.is_symlink():
        _, _, name = os.readlink(link).partition("zoneinfo/")
        names.append(name)
    elif not link.exists():
        names.append("UTC")
    if (setting := etc / "timezone").is_file():
        names.append(setting.read_text(errors="replace").strip())
    return names
