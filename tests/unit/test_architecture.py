"""Imports go one way: docs/architecture.md lists the layers, and the code keeps to them."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"


def layers() -> dict[str, int]:
    """Module to layer, the lowest first, from the page itself."""
    block = re.search(r"```layers\n(.*?)```", (ROOT / "docs/architecture.md").read_text(), re.DOTALL)
    assert block is not None
    lines = block[1].strip().splitlines()
    return {name.strip(): level for level, line in enumerate(lines) for name in line.split(",")}


def layer_of(module: str) -> str | None:
    return next((name for name in layers() if module == name or module.startswith(name + ".")), None)


def modules() -> list[Path]:
    return sorted((SOURCE / "evenbeat").rglob("*.py"))


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def imported(source: str) -> set[str]:
    """The modules that a source imports, also within functions and TYPE_CHECKING blocks."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            # `from evenbeat import cli` names a module as well.
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def wrong_ways(module: str, source: str) -> list[str]:
    here = layer_of(module)
    if here is None:
        return []
    order = layers()
    targets = {layer for name in imported(source) if (layer := layer_of(name)) is not None}
    return sorted(target for target in targets if order[target] > order[here])


@pytest.mark.parametrize("path", modules(), ids=module_name)
def test_no_module_imports_from_a_layer_below_its_own(path: Path) -> None:
    assert wrong_ways(module_name(path), path.read_text()) == []


def test_every_module_has_a_layer() -> None:
    entrances = {"evenbeat", "evenbeat.__main__"}
    assert {name for path in modules() if layer_of(name := module_name(path)) is None} <= entrances


def test_the_check_finds_an_import_against_the_direction() -> None:
    assert wrong_ways("evenbeat.errors", "def f():\n    from evenbeat import triggers") == [
        "evenbeat.triggers"
    ]
    assert wrong_ways("evenbeat.triggers.cron", "import evenbeat.cli.next") == ["evenbeat.cli"]
    assert wrong_ways("evenbeat.cli", "from evenbeat.triggers import cron") == []


def test_only_the_timeline_imports_numpy() -> None:
    importers = set()
    for path in modules():
        if "numpy" in {name.split(".")[0] for name in imported(path.read_text())}:
            importers.add(module_name(path))
    assert importers
    assert all(name.startswith("evenbeat.timeline.") for name in importers)


def test_importing_evenbeat_imports_neither_numpy_nor_the_command_line() -> None:
    code = "import evenbeat, sys; print(sorted({'numpy', 'rich', 'click'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
