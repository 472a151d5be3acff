"""Puts the built dashboard into sdists and wheels.

An sdist contains the built files, so that a wheel built from it needs no Node. An editable install serves the
files that ``make ui`` builds.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class DashboardHook(BuildHookInterface[BuilderConfig]):
    """Builds the dashboard before files are collected."""

    def dependencies(self) -> list[str]:
        """Return what the build environment needs: a Node from PyPI, where the machine has none."""
        # Hatchling asks for the requirements of an editable wheel as for those of any other. Only the name of
        # the function that asks, given by PEP 660, tells them apart.
        if any(frame.function == "get_requires_for_build_editable" for frame in inspect.stack(0)):
            return []
        dashboard = _load(Path(self.root))
        needed: list[str] = dashboard.requirements()
        if needed:
            sys.stderr.write(
                f"No Node {dashboard.OLDEST_NODE} or newer with npm on PATH: "
                f"building the dashboard installs {' '.join(needed)}.\n"
            )
        return needed

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the dashboard, unless it is up to date or the wheel is an editable one."""
        if version != "editable":
            _load(Path(self.root)).build()


def _load(root: Path) -> ModuleType:
    path = root / "ui" / "dashboard.py"
    spec = importlib.util.spec_from_file_location("evenbeat_dashboard_build", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
