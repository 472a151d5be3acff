"""Where a setting comes from: flag > EVENBEAT_* > evenbeat.toml > pyproject.toml ([tool.evenbeat]) > default.

The files are those of the first folder, from the working directory upwards, that has one of them. A relative
path in a file is meant from the file's folder, so that it means the same wherever a command is called.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from evenbeat.core.checks import check_label
from evenbeat.core.durations import read_duration
from evenbeat.errors import InvalidValue, shown
from evenbeat.stores.urls import without_password

DEFAULT_STORE = "sqlite:///evenbeat.db"
LOG_FORMATS = ("text", "json")
LOG_LEVELS = ("debug", "info", "warning", "error", "critical")

_PREFIX = "EVENBEAT_"
_OWN_FILE, _PROJECT_FILE = "evenbeat.toml", "pyproject.toml"
_RELATIVE_SQLITE = re.compile(r"sqlite:///(?![/~])")

OriginKind: TypeAlias = Literal["flag", "variable", "file", "app", "default"]


class Origin(NamedTuple):
    """Where a value was said."""

    kind: OriginKind
    name: str = ""
    """The flag, the variable, the key in the file, or the app whose code says it."""
    file: Path | None = None
    line: int | None = None
    """None where it could not be found: TOML has many ways to say the same."""

    def __str__(self) -> str:
        if self.file is not None:
            return f"{self.name} in {self.file}" + ("" if self.line is None else f":{self.line}")
        return f"the code of {self.name}" if self.kind == "app" else self.name or "default"


class Setting(NamedTuple):
    """A value that was read, and where from."""

    name: str
    value: Any
    origin: Origin

    @property
    def shown(self) -> str:
        """For people, without a password."""
        if self.value is None:
            return "none"
        if self.name == "store":
            return without_password(self.value)
        return ", ".join(self.value) if isinstance(self.value, tuple) else str(self.value)


class Settings(Mapping[str, Any]):
    """All settings: ``settings["store"]`` is a value, ``settings.of("store")`` also says where from."""

    def __init__(self, settings: Mapping[str, Setting], warnings: tuple[str, ...] = ()) -> None:
        self._settings = dict(settings)
        self.warnings = warnings
        """What looks like a mistake and was passed over."""

    def __getitem__(self, name: str) -> Any:
        return self._settings[name].value

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def of(self, name: str) -> Setting:
        return self._settings[name]

    def is_said(self, name: str) -> bool:
        """Whether anybody said it: it is not the default."""
        return self._settings[name].origin.kind != "default"


def read_settings(
    flags: Mapping[str, Any] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Settings:
    """The settings of this process: ``flags`` by name (None: not said), the environment, the files.

    A value that makes no sense, or a key that no setting has, is refused with the place where it was said.
    """
    environment = os.environ if environment is None else environment
    said: dict[str, Setting] = {}
    for source in (_from_files(folder), _from_environment(environment), _from_flags(flags or {})):
        said |= {setting.name: setting for setting in source}
    default = Origin("default")
    return Settings(
        {name: said.get(name) or Setting(name, spec.default, default) for name, spec in _SPECS.items()},
        tuple(_unknown_variables(environment)),
    )


def default_store() -> str:
    """The store's URL, where nobody said one in code."""
    store = read_settings()["store"]
    assert isinstance(store, str)
    return store


# -- where values are said ---------------------------------------------------------------------------------


def _from_flags(flags: Mapping[str, Any]) -> Iterator[Setting]:
    for name, value in flags.items():
        # An option that may be repeated is an empty tuple where it is not given.
        if value is not None and value != ():
            yield _read(name, value, Origin("flag", f"--{name.replace('_', '-')}"))


def _from_environment(environment: Mapping[str, str]) -> Iterator[Setting]:
    for name in _SPECS:
        variable = _PREFIX + name.upper()
        # Empty counts as not said: it is how a compose file or a unit leaves one out.
        if value := environment.get(variable):
            yield _read(name, value, Origin("variable", variable))


def _unknown_variables(environment: Mapping[str, str]) -> Iterator[str]:
    known = [_PREFIX + name.upper() for name in _SPECS]
    for variable in sorted(environment):
        # Those of our tests name servers, and are for nobody else.
        is_ours = variable.startswith(_PREFIX) and not variable.startswith(f"{_PREFIX}TEST_")
        if is_ours and variable not in known:
            yield f"{variable} is no setting and was passed over{_did_you_mean(variable, known)}"


def _from_files(folder: Path | None) -> Iterator[Setting]:
    try:
        here = Path.cwd() if folder is None else folder
    except OSError:  # the working directory is gone
        return
    for folder in (here, *here.parents):
        own, project = folder / _OWN_FILE, folder / _PROJECT_FILE
        if own.is_file() or project.is_file():
            for file in (project, own):
                if file.is_file():
                    yield from _from_file(file, here)
            return


def _from_file(file: Path, here: Path) -> Iterator[Setting]:
    try:
        text = file.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        # What is wrong elsewhere in pyproject.toml is for others to say; here it hides our settings.
        raise InvalidValue(f"{file} can't be read: {error}", field=file.name, value=str(file)) from None
    prefix = ""
    if file.name == _PROJECT_FILE:
        prefix = "tool.evenbeat"
        tool = document.get("tool")
        document = tool.get("evenbeat", {}) if isinstance(tool, dict) else {}
        if not isinstance(document, dict):
            raise InvalidValue(f"{prefix} in {file} is not a table", field=prefix, value=document)
    for key, value in document.items():
        origin = Origin("file", f"{prefix}.{key}" if prefix else key, file, _line(text, prefix, key))
        if key not in _SPECS:
            raise InvalidValue(
                f"{origin} is no setting{_did_you_mean(key, _SPECS)}",
                field=key,
                value=key,
                hint=f"there are {', '.join(_SPECS)}" if not _did_you_mean(key, _SPECS) else None,
            )
        setting = _read(key, value, origin)
        yield setting if file.parent == here else setting._replace(value=_anchored(setting, file.parent))


def _anchored(setting: Setting, folder: Path) -> Any:
    """A relative path as it is meant in a file of ``folder``."""
    if setting.name == "store" and _RELATIVE_SQLITE.match(setting.value):
        return f"sqlite:///{folder.as_posix()}/{setting.value.removeprefix('sqlite:///')}"
    if setting.name == "app" and re.search(r"\.py(:|$)", setting.value):
        return str(folder / setting.value)
    return setting.value


def _line(text: str, table: str, key: str) -> int | None:
    """The line of a key that is written in the usual way: bare, under the heading of its table."""
    current = ""
    for number, line in enumerate(text.splitlines(), 1):
        if heading := re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line):
            current = heading[1]
        elif current == table and re.match(rf"\s*{re.escape(key)}\s*=", line):
            return number
    return None


def _did_you_mean(word: str, known: Mapping[str, object] | list[str]) -> str:
    near = get_close_matches(word.replace("-", "_"), known, n=1, cutoff=0.6)
    return f": did you mean {near[0]}?" if near else ""


# -- what a value may be -----------------------------------------------------------------------------------


class _Spec(NamedTuple):
    read: Callable[[str, Any], Any]
    """From (name, value) to what is kept; ``InvalidValue`` if it makes no sense."""
    default: Any


def _read(name: str, value: Any, origin: Origin) -> Setting:
    try:
        return Setting(name, _SPECS[name].read(name, value), origin)
    except InvalidValue as error:
        # The flag is what was typed: it needs no second name.
        place = f"{origin}: " if origin.kind != "flag" else ""
        raise InvalidValue(
            f"{place}{error.problem}", field=error.field, value=error.value, hint=error.hint
        ) from None


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidValue(f"{name} {shown(value)} is not a text", field=name, value=value)
    return value.strip()


def _app(name: str, value: Any) -> str:
    text = _text(name, value)
    # Whether there is a scheduler in it is for who loads it to say.
    if not re.search(r"\.py$|[^:]:[^:]|^[A-Za-z_][\w.]*$", text):
        raise InvalidValue(
            f"{name} {shown(value)} names no scheduler",
            field=name,
            value=value,
            hint="write a file, app.py, or a module, shop.jobs or shop.jobs:app",
        )
    return text


def _store(name: str, value: Any) -> str:
    text = _text(name, value)
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


def _tenant(name: str, value: Any) -> str:
    check_label(value, name)
    assert isinstance(value, str)
    return value


def _queues(name: str, value: Any) -> tuple[str, ...]:
    words = value.split(",") if isinstance(value, str) else value
    if not isinstance(words, (list, tuple)) or not all(isinstance(word, str) for word in words):
        raise InvalidValue(
            f"{name} {shown(value)} are not names", field=name, value=value, hint='write ["default", "mail"]'
        )
    found = tuple(word.strip() for word in words)
    for queue in found:
        check_label(queue, "queue")
    if not found:
        raise InvalidValue(f"{name} are none", field=name, value=value, hint='write ["default"]')
    return found


def _count(name: str, value: Any) -> int:
    whole = int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value.strip()) else value
    if not isinstance(whole, int) or isinstance(whole, bool) or not 1 <= whole <= 10_000:
        raise InvalidValue(
            f"{name} {shown(value)} is not a whole number of 1 to 10,000", field=name, value=value
        )
    return whole


def _duration(shortest: int) -> Callable[[str, Any], Any]:
    def read(name: str, value: Any) -> Any:
        if read_duration(value, name) < shortest:
            raise InvalidValue(
                f"{name} {shown(value)} is shorter than {shortest} ms", field=name, value=value
            )
        return value  # as it was said: "30s" is what people want to see again

    return read


def _choice(choices: tuple[str, ...]) -> Callable[[str, Any], str]:
    def read(name: str, value: Any) -> str:
        word = _text(name, value).lower()
        if word not in choices:
            raise InvalidValue(
                f"{name} {shown(value)} is not one of {', '.join(choices)}", field=name, value=value
            )
        return word

    return read


_SPECS: dict[str, _Spec] = {
    "app": _Spec(_app, None),
    "store": _Spec(_store, DEFAULT_STORE),
    "tenant": _Spec(_tenant, "default"),
    # Those of a node have the defaults of evenbeat.node.settings.
    "queues": _Spec(_queues, ("default",)),
    "thread_concurrency": _Spec(_count, 10),
    "async_concurrency": _Spec(_count, 100),
    "process_concurrency": _Spec(_count, os.cpu_count() or 1),
    "processes": _Spec(_count, 1),
    "lease": _Spec(_duration(1_000), "30s"),
    "poll_interval": _Spec(_duration(10), "30s"),
    "drain_timeout": _Spec(_duration(0), "30s"),
    "retention": _Spec(_duration(0), "30d"),
    "wait_for_store": _Spec(_duration(0), "60s"),
    "log_format": _Spec(_choice(LOG_FORMATS), "text"),
    "log_level": _Spec(_choice(LOG_LEVELS), "info"),
}
