"""Load the app that a command line names: ``app.py``, ``app.py:name``, ``package.module:name``."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from evenbeat.app.scheduler import Scheduler
from evenbeat.documents import Processor
from evenbeat.errors import InvalidValue, shown
from evenbeat.processes.importing import import_file, import_name
from evenbeat.stores.base import Store

_T = TypeVar("_T")


def load_app(target: str) -> Scheduler:
    """The scheduler in a file or a module; without a name, the only one there.

    Importing executes the code, so that only ever a user's own command line comes here: nothing that is
    stored names code. What the module raises is a ``AppImportError`` with its traceback.
    """
    return _load(target, Scheduler, "app")


def load_processor(target: str) -> Processor:
    """The processor of documents in a file or a module, in the same way."""
    return _load(target, Processor, "processor")


def load_store(target: str) -> tuple[Store, str]:
    """The store that the code of an app names, not opened, and its URL as it may be shown."""
    app = load_app(target)
    return app._session.unopened(), app.url  # noqa: SLF001  # what `store` would open


def _load(target: str, kind: type[_T], field: str) -> _T:
    place, name = _split(target, field)
    if place.endswith(".py") or os.sep in place:
        module = import_file(Path(place).expanduser())
    else:
        module = import_name(place, os.getcwd())
    return _only(module, target, kind, field) if name is None else _named(module, name, target, kind, field)


def _split(target: str, field: str) -> tuple[str, str | None]:
    place, colon, name = target.rpartition(":")
    # C:\app.py has a colon as well.
    if not colon or "\\" in name or "/" in name:
        place, name = target, ""
    if not place or (colon and place != target and not name.isidentifier()):
        raise InvalidValue(
            f"{field} {shown(target)} is not understood",
            field=field,
            value=target,
            hint="write app.py, app.py:name, package.module or package.module:name",
        )
    return place, name or None


def _only(module: ModuleType, target: str, kind: type[_T], field: str) -> _T:
    found = {name: value for name, value in vars(module).items() if isinstance(value, kind)}
    if len(set(map(id, found.values()))) == 1:
        return next(iter(found.values()))
    what = kind.__name__
    if not found:
        raise InvalidValue(
            f"there is no {what} in {target}",
            field=field,
            value=target,
            hint=f"make one at the top level of the module: {field} = {what}(…)",
        )
    names = sorted(found)
    raise InvalidValue(
        f"there are several {what}s in {target}: {', '.join(names)}",
        field=field,
        value=target,
        hint=f"say which one, as in {target}:{names[0]}",
    )


def _named(module: ModuleType, name: str, target: str, kind: type[_T], field: str) -> _T:
    value = getattr(module, name, None)
    if isinstance(value, kind):
        return value
    there = [known for known, other in vars(module).items() if isinstance(other, kind)]
    what = kind.__name__
    problem = "is not there" if not hasattr(module, name) else f"is a {type(value).__name__}, not a {what}"
    raise InvalidValue(
        f"{name} of {shown(target)} {problem}",
        field=field,
        value=target,
        hint=f"there is {', '.join(sorted(there)) or f'no {what} at all'}",
    )
