"""The scenes, a module for each subject. A new module in this folder is found without registration."""

from __future__ import annotations

import importlib
import pkgutil

from tests.faults.scene import Mutant, Scene


def _modules() -> list[str]:
    return sorted(f"{__name__}.{found.name}" for found in pkgutil.iter_modules(__path__))


def all_scenes() -> list[Scene]:
    return [scene for name in _modules() for scene in getattr(importlib.import_module(name), "SCENES", ())]


def all_mutants() -> list[Mutant]:
    return [mutant for name in _modules() for mutant in getattr(importlib.import_module(name), "MUTANTS", ())]
