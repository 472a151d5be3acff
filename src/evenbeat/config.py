"""Settings. A flag overrides a variable, a variable overrides evenbeat.toml, and evenbeat.toml overrides
[tool.evenbeat] of pyproject.toml.

The files may also declare alert channels and rules, in the tables alerts.channels.NAME and alerts.rules.NAME,
and schedules, in the tables schedules.NAME.

The files are those of the first folder, from the working directory upwards, that has one of them. A relative
path in a file starts at the file's folder, so that every command finds the same file, wherever it is called.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from evenbeat.core.durations import write_duration
from evenbeat.core.option import Option
from evenbeat.core.options import SETTINGS
from evenbeat.errors import InvalidValue, shown
from evenbeat.schedule_files import DeclaredSchedule, ScheduleFile, declared_schedules, read_schedule_file
from evenbeat.stores.urls import without_password
from evenbeat.toml_lines import heading_line, key_line

_PREFIX = "EVENBEAT_"
_OWN_FILE, _PROJECT_FILE = "evenbeat.toml", "pyproject.toml"
_ALERTS, _SCHEDULES = "alerts", "schedules"
_RELATIVE_SQLITE = re.compile(r"sqlite:///(?![/~])")

OriginKind: TypeAlias = Literal["flag", "variable", "file", "app", "default"]


class Origin(NamedTuple):
    """Where a value was set."""

    kind: OriginKind
    name: str = ""
    """The flag, the variable, the key in the file, or the app whose code sets it."""
    file: Path | None = None
    line: int | None = None
    """None where it could not be found: TOML has many ways to write the same."""

    def __str__(self) -> str:
        if self.file is not None:
            return f"{self.name} in {self.file}" + ("" if self.line is None else f":{self.line}")
        return f"the code of {self.name}" if self.kind == "app" else self.name or "default"


class DeclaredAlert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert channel or rule that a file declares. Its keys are known; its values are not checked yet."""

    kind: Literal["channel", "rule"]
    name: str
    fields: dict[str, Any]
    place: str
    """Where it was declared, for errors: ``alerts.rules.nightly in …/evenbeat.toml:7``."""


class Setting(NamedTuple):
    """A value, and where it was set."""

    name: str
    value: Any
    origin: Origin

    @property
    def shown(self) -> str:
        """The value for people, without a password."""
        if self.value is None:
            return "none"
        if self.name == "store":
            return without_password(self.value)
        return ", ".join(self.value) or "none" if isinstance(self.value, tuple) else str(self.value)


class Settings(Mapping[str, Any]):
    """All settings: ``settings["store"]`` is a value, ``settings.of("store")`` also has its origin."""

    def __init__(
        self,
        settings: Mapping[str, Setting],
        warnings: tuple[str, ...] = (),
        alerts: tuple[DeclaredAlert, ...] = (),
        schedules: tuple[DeclaredSchedule, ...] = (),
    ) -> None:
        self._settings = dict(settings)
        self.warnings = warnings
        """Variables that look like a mistake and are ignored."""
        self.alerts = alerts
        """The alert channels and rules that files declare."""
        self.schedules = schedules
        """The schedules that files declare. Those of the setting ``schedules_file`` are not among them."""

    def schedule_file(self) -> ScheduleFile | None:
        """Return the schedules that the settings declare, in their own tables or in ``schedules_file``, which
        overrides them; None if they declare none."""
        path = self["schedules_file"]
        if path is None:
            return ScheduleFile(schedules=self.schedules, source=None) if self.schedules else None
        found = read_schedule_file(path)
        keys = {each.key for each in found.schedules}
        others = tuple(each for each in self.schedules if each.key not in keys)
        return ScheduleFile(schedules=(*others, *found.schedules), source=found.source)

    def __getitem__(self, name: str) -> Any:
        return self._settings[name].value

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def of(self, name: str) -> Setting:
        """Return a setting with its origin."""
        return self._settings[name]

    def is_set(self, name: str) -> bool:
        """Return whether a flag, a variable or a file sets it."""
        return self._settings[name].origin.kind != "default"


def read_settings(
    flags: Mapping[str, Any] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Settings:
    """Return the settings from ``flags`` by name (None: not given), the environment and the files.

    ``InvalidValue`` for a value that can't be read or an unknown key, with the place where it was set.
    """
    environment = os.environ if environment is None else environment
    found: dict[str, Setting] = {}
    files = list(_files(folder))
    from_files = (setting for file in files for setting in _from_file(file))
    for source in (from_files, _from_environment(environment), _from_flags(flags or {})):
        found |= {setting.name: setting for setting in source}
    default = Origin("default")
    return Settings(
        {
            name: found.get(name) or Setting(name, _default(option), default)
            for name, option in SETTINGS.items()
        },
        tuple(_unknown_variables(environment)),
        tuple(_declared_alerts(files)),
        tuple(_declared_schedules(files)),
    )


def default_store() -> str:
    """Return the URL of the store for a ``Scheduler`` that is made without one."""
    store = read_settings()["store"]
    assert isinstance(store, str)
    return store


def _default(option: Option) -> Any:
    """Return the default as a user would write it."""
    is_duration = option.kind == "duration" and option.default is not None
    return write_duration(option.default) if is_duration else option.default


# -- where values are set ----------------------------------------------------------------------------------


def _from_flags(flags: Mapping[str, Any]) -> Iterator[Setting]:
    for name, value in flags.items():
        # An option that may be repeated is an empty tuple where it is not given.
        if value is not None and value != ():
            yield _read(name, value, Origin("flag", f"--{name.replace('_', '-')}"))


def _from_environment(environment: Mapping[str, str]) -> Iterator[Setting]:
    for name in SETTINGS:
        variable = _PREFIX + name.upper()
        # An empty variable is not set: compose files and units leave one out in this way.
        if value := environment.get(variable):
            yield _read(name, value, Origin("variable", variable))


def _unknown_variables(environment: Mapping[str, str]) -> Iterator[str]:
    known = [_PREFIX + name.upper() for name in SETTINGS]
    for variable in sorted(environment):
        # EVENBEAT_TEST_* name servers for Evenbeat's own tests, EVENBEAT_SECRET_* have secrets of channels.
        others = (f"{_PREFIX}TEST_", f"{_PREFIX}SECRET_")
        is_ours = variable.startswith(_PREFIX) and not variable.startswith(others)
        if is_ours and variable not in known:
            yield f"{variable} is not a setting and is ignored{_did_you_mean(variable, known)}"


class _File(NamedTuple):
    """A file with settings."""

    path: Path
    text: str
    table: dict[str, Any]
    """What it says about Evenbeat."""
    prefix: str
    """The name of that table, with a full stop; empty if it is the whole file."""
    here: Path
    """The working directory."""

    def origin(self, *keys: str) -> Origin:
        """Return the place of a value, or of a table, by its keys."""
        name = self.prefix + ".".join(keys)
        table = (self.prefix + ".".join(keys[:-1])).removesuffix(".")
        line = key_line(self.text, table, keys[-1]) or heading_line(self.text, name)
        return Origin("file", name, self.path, line)


def _files(folder: Path | None) -> Iterator[_File]:
    """Yield the files with settings; later ones override earlier ones."""
    try:
        here = Path.cwd() if folder is None else folder
    except OSError:  # the working directory is gone
        return
    for folder in (here, *here.parents):
        own, project = folder / _OWN_FILE, folder / _PROJECT_FILE
        if own.is_file() or project.is_file():
            yield from (_read_file(file, here) for file in (project, own) if file.is_file())
            return


def _read_file(file: Path, here: Path) -> _File:
    try:
        text = file.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        # An error anywhere in pyproject.toml hides the settings in it.
        raise InvalidValue(f"{file} can't be read: {error}", field=file.name, value=str(file)) from None
    if file.name != _PROJECT_FILE:
        return _File(file, text, document, "", here)
    tool = document.get("tool")
    document = tool.get("evenbeat", {}) if isinstance(tool, dict) else {}
    if not isinstance(document, dict):
        raise InvalidValue(f"tool.evenbeat in {file} is not a table", field="tool.evenbeat", value=document)
    return _File(file, text, document, "tool.evenbeat.", here)


def _from_file(file: _File) -> Iterator[Setting]:
    for key, value in file.table.items():
        if key in (_ALERTS, _SCHEDULES):
            continue
        origin = file.origin(key)
        if key not in SETTINGS:
            raise _unknown_key(origin, key, (*SETTINGS, _ALERTS, _SCHEDULES), "a setting")
        setting = _read(key, value, origin)
        is_here = file.path.parent == file.here
        yield setting if is_here else setting._replace(value=_anchored(setting, file.path.parent))


# -- alerts ------------------------------------------------------------------------------------------------

_OWNER = ("tenant", "all_tenants")
_ALERT_TABLES: dict[str, tuple[Literal["channel", "rule"], tuple[str, ...], tuple[str, ...]]] = {
    "channels": ("channel", ("kind", "url"), ("secret", *_OWNER)),
    "rules": ("rule", ("on", "to"), ("schedule", "tag", "recovery", *_OWNER)),
}
"""By table: what it declares, the keys that are required, and the others."""


def _declared_alerts(files: list[_File]) -> Iterator[DeclaredAlert]:
    """Yield what the files declare; of the same name, the last one."""
    found: dict[tuple[str, str], DeclaredAlert] = {}
    for file in files:
        for title, entries in _table(file, file.table.get(_ALERTS, {}), _ALERTS).items():
            if title not in _ALERT_TABLES:
                raise _unknown_key(
                    file.origin(_ALERTS, title), title, tuple(_ALERT_TABLES), "a table of alerts"
                )
            for name, fields in _table(file, entries, _ALERTS, title).items():
                found[title, name] = _declared_alert(file, title, name, fields)
    return iter(found.values())


def _declared_alert(file: _File, title: str, name: str, value: object) -> DeclaredAlert:
    kind, required, others = _ALERT_TABLES[title]
    fields = _table(file, value, _ALERTS, title, name)
    for key in fields:
        if key not in (*required, *others):
            place = file.origin(_ALERTS, title, name, key)
            raise _unknown_key(place, key, (*required, *others), f"a key of an alert {kind}")
    origin = file.origin(_ALERTS, title, name)
    for key in required:
        if key not in fields:
            raise InvalidValue(f"{origin} has no {key}", field=key, value=None, hint=f"add the key {key}")
    if not isinstance(fields.get("all_tenants", False), bool):
        raise InvalidValue(
            f"{file.origin(_ALERTS, title, name, 'all_tenants')} is not true or false",
            field="all_tenants",
            value=fields["all_tenants"],
        )
    return DeclaredAlert(kind=kind, name=name, fields=fields, place=str(origin))


def _table(file: _File, value: object, *keys: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidValue(f"{file.origin(*keys)} is not a table", field=keys[-1], value=value)
    return value


def _unknown_key(origin: Origin, key: str, known: tuple[str, ...], what: str) -> InvalidValue:
    near = _did_you_mean(key, list(known))
    hint = None if near else f"there are {', '.join(known)}"
    return InvalidValue(f"{origin} is not {what}{near}", field=key, value=key, hint=hint)


def _declared_schedules(files: list[_File]) -> Iterator[DeclaredSchedule]:
    """Yield the schedules that the files declare; of the same tenant and name, the last one."""
    found: dict[tuple[str, str], DeclaredSchedule] = {}
    for file in files:
        tables = file.table.get(_SCHEDULES, {})
        for each in declared_schedules(tables, lambda *keys, file=file: str(file.origin(_SCHEDULES, *keys))):
            found[each.key] = each
    return iter(found.values())


# -- paths and lines ---------------------------------------------------------------------------------------


def _anchored(setting: Setting, folder: Path) -> Any:
    """Return the value with a relative path joined to ``folder``, in which its file lies."""
    if setting.name == "store" and _RELATIVE_SQLITE.match(setting.value):
        return f"sqlite:///{folder.as_posix()}/{setting.value.removeprefix('sqlite:///')}"
    if setting.name == "schedules_file":
        return str(folder / setting.value)
    if setting.name == "app" and re.search(r"\.py(:|$)", setting.value):
        return str(folder / setting.value)
    return setting.value


def _did_you_mean(word: str, known: Mapping[str, object] | list[str]) -> str:
    near = get_close_matches(word.replace("-", "_"), known, n=1, cutoff=0.6)
    return f": did you mean {near[0]}?" if near else ""


# -- how a value is read -----------------------------------------------------------------------------------


def _read(name: str, value: Any, origin: Origin) -> Setting:
    try:
        return Setting(name, _READERS.get(name, _read_option)(name, value), origin)
    except InvalidValue as error:
        # The message names the option already, which is what the user typed as a flag.
        place = f"{origin}: " if origin.kind != "flag" else ""
        raise InvalidValue(
            f"{place}{error.problem}", field=error.field, value=error.value, hint=error.hint
        ) from None


def _read_option(name: str, value: Any) -> Any:
    """Read a value as Python does, and as text as well: ``4``, ``default,mail``, ``DEBUG``."""
    option = SETTINGS[name]
    if isinstance(value, str):
        if option.kind == "count" and re.fullmatch(r"[0-9]{1,9}", value.strip()):
            value = int(value)
        elif option.kind in ("labels", "hosts"):
            value = [label.strip() for label in value.split(",")]
        elif option.kind == "choice":
            value = value.strip().lower()
    read = option.read(value)
    # A duration stays as it was written: people want to see "30s" again.
    return value if option.kind == "duration" else read


def _read_text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidValue(f"{name} {shown(value)} is not a text", field=name, value=value)
    return value.strip()


def _read_app(name: str, value: Any) -> str:
    text = _read_text(name, value)
    # Only the form is checked here: loading the app finds out whether there is a scheduler in it.
    if not re.search(r"\.py$|[^:]:[^:]|^[A-Za-z_][\w.]*$", text):
        raise InvalidValue(
            f"{name} {shown(value)} does not name a scheduler",
            field=name,
            value=value,
            hint="write a file, app.py, or a module, shop.jobs or shop.jobs:app",
        )
    return text


def _read_store(name: str, value: Any) -> str:
    text = _read_text(name, value)
    if "://" not in text:
        visible = without_password(text)
        raise InvalidValue(
            f"{name} {shown(visible)} is not a URL",
            field=name,
            value=visible,
            hint="write sqlite:///evenbeat.db, sqlite:////an/absolute/path.db, or "
            "postgresql://user:password@host/database",
        )
    return text


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "app": _read_app,
    "store": _read_store,
    "schedules_file": _read_text,
    "health_host": _read_text,
}
"""Of settings that no Python call takes as an option."""
