"""Import a user's module, by its name or by its file, without starting what it would run."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType

from evenbeat.errors import AppImportError, InvalidValue, shown

_importing: ContextVar[bool] = ContextVar("evenbeat_importing", default=False)


def is_importing() -> bool:
    """Return whether this code runs because Evenbeat imports its module.

    ``start`` and ``run`` of a scheduler do nothing then: the importer decides what to start, and a script
    without ``if __name__ == "__main__":`` starts nothing twice.
    """
    return _importing.get()


def import_name(name: str, folder: str | None = None) -> ModuleType:
    """Import the module of that name, with ``folder`` first on ``sys.path``."""
    if folder is not None:
        _first_on_path(folder)
    try:
        with _importing_module(name):
            return importlib.import_module(name)
    except ModuleNotFoundError:
        raise InvalidValue(
            f"there is no module {shown(name)}",
            field="app",
            value=name,
            hint="name a file, as in app.py, or a module that can be imported from here",
        ) from None


def import_file(path: Path) -> ModuleType:
    """Import the module in a file under its usual name, with its folder first on ``sys.path``."""
    path = path.resolve()
    if not path.is_file():
        raise InvalidValue(f"there is no file {path}", field="app", value=str(path))
    name, folder = _name_of(path)
    _first_on_path(str(folder))
    if "." in path.stem or importlib.util.find_spec(name.partition(".")[0]) is None:
        raise InvalidValue(
            f"{path.name} can't be imported under its name",
            field="app",
            value=str(path),
            hint="rename it, as in my_app.py",
        )
    with _importing_module(str(path)):
        module = importlib.import_module(name)
    found = getattr(module, "__file__", None)
    if found is None or Path(found).resolve() != path:
        raise InvalidValue(
            f"{path.name} can't be imported: {name} is {found or 'a module of Python itself'}",
            field="app",
            value=str(path),
            hint="rename the file",
        )
    return module


def import_main(path: Path) -> ModuleType:
    """Import the script that is ``__main__`` of another process, under another name."""
    present = sys.modules.get(_MAIN)
    if present is not None:
        return present
    spec = importlib.util.spec_from_file_location(_MAIN, path)
    if spec is None or spec.loader is None:
        raise InvalidValue(f"{path} is not a Python file", field="file", value=str(path))
    module = sys.modules[_MAIN] = importlib.util.module_from_spec(spec)
    try:
        with _importing_module(str(path)):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[_MAIN]
        raise
    return module


_MAIN = "__evenbeat_main__"


@contextmanager
def _importing_module(what: str) -> Iterator[None]:
    token = _importing.set(True)
    try:
        _set_up_django()
        yield
    except AppImportError:
        raise
    except ModuleNotFoundError as error:
        # The module itself is missing. A module that it imports may be missing, too: that is another error.
        if what == error.name or what.startswith(f"{error.name}."):
            raise
        raise AppImportError(what, _user_traceback(error)) from error
    except (Exception, SystemExit) as error:
        raise AppImportError(what, _user_traceback(error)) from error
    finally:
        _importing.reset(token)


def _set_up_django() -> None:
    """Load the apps of a Django project, as manage.py does: modules that import models need them."""
    settings = os.environ.get("DJANGO_SETTINGS_MODULE")
    if not settings or importlib.util.find_spec("django") is None:
        return
    django = importlib.import_module("django")
    if importlib.import_module("django.apps").apps.ready:
        return
    try:
        django.setup()
    except Exception as error:
        raise AppImportError(
            f"Django, with DJANGO_SETTINGS_MODULE={settings},", _user_traceback(error)
        ) from error
    # By default, LOGGING in the settings disables the loggers that exist already.
    for name, logger in logging.root.manager.loggerDict.items():
        if name.partition(".")[0] == "evenbeat" and isinstance(logger, logging.Logger):
            logger.disabled = False


def _user_traceback(error: BaseException) -> str:
    """Return the traceback as Python prints it, from the first frame of the user's own code on."""
    trace = error.__traceback__
    while trace is not None and _is_machinery(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    if trace is None and not isinstance(error, SyntaxError):
        trace = error.__traceback__
    return "".join(traceback.format_exception(type(error), error, trace)).rstrip()


def _is_machinery(file: str) -> bool:
    return file == __file__ or file == importlib.__file__ or file.startswith("<frozen importlib")


def _name_of(path: Path) -> tuple[str, Path]:
    """Return the full name of the module in a file, and the folder above its outermost package."""
    parts = [] if path.stem == "__init__" else [path.stem]
    folder = path.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts), folder


def _first_on_path(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)
