"""The scheduler that a command line names: ``app.py``, ``app.py:name``, ``package.module:name``."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

from evenbeat.errors import InvalidValue, shown
from evenbeat.modules import import_file, import_name
from evenbeat.scheduler import Scheduler
from evenbeat.stores.base import Store


def load_app(target: str) -> Scheduler:
    """The scheduler in a file or a module; without a name, the only one there.

    Importing executes the code, so that only ever a user's own command line comes here: nothing that is
    stored names code. What the module raises is a ``ModuleFailed`` with its traceback.
    """
    place, name = _split(target)
    if place.endswith(".py") or os.sep in place:
        module = import_file(Path(place).expanduser())
    else:
        module = import_name(place, os.getcwd())
    return _only(module, target) if name is None else _named(module, name, target)


def load_store(target: str) -> Store:
    """The store that the code of an app names, not opened."""
    return load_app(target)._access.unopened()  # noqa: SLF001  # what `store` would open


def _split(target: str) -> tuple[str, str | None]:
    place, colon, name = target.rpartition(":")
    # C:\app.py has a colon as well.
    if not colon or "\\" in name or "/" in name:
        place, name = target, ""
    if not place or (colon and place != target and not name.isidentifier()):
        raise InvalidValue(
            f"app {shown(target)} is not understood", field="app", value=target,
            hint="write app.py, app.py:name, package.module or package.module:name",
        )  # fmt: skip
    return place, name or None


def _only(module: ModuleType, target: str) -> Scheduler:
    found = {name: value for name, value in vars(module).items() if isinstance(value, Scheduler)}
    if len(set(map(id, found.values()))) == 1:
        return next(iter(found.values()))
    if not found:
        raise InvalidValue(
            f"there is no Scheduler in {target}", field="app", value=target,
            hint="make one at the top level of the module: app = Scheduler(…)",
        )  # fmt: skip
    names = sorted(found)
    raise InvalidValue(
        f"there are several Schedulers in {target}: {', '.join(names)}", field="app", value=target,
        hint=f"say which one, as in {target}:{names[0]}",
    )  # fmt: skip


def _named(module: ModuleType, name: str, target: str) -> Scheduler:
    value = getattr(module, name, None)
    if isinstance(value, Scheduler):
        return value
    there = [known for known, other in vars(module).items() if isinstance(other, Scheduler)]
    what = "is not there" if not hasattr(module, name) else f"is a {type(value).__name__}, not a Scheduler"
    raise InvalidValue(
        f"{name} of {shown(target)} {what}", field="app", value=target,
        hint=f"there is {', '.join(sorted(there)) or 'no Scheduler at all'}",
    )  # fmt: skip
