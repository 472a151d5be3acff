"""docs/architecture.md lists layers, folders and modules: imports go one way, and the lists are true."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "evenbeat"
PAGE = (ROOT / "docs/architecture.md").read_text()


@cache
def layers() -> dict[str, int]:
    """Return the layer of each module, the lowest first, from the page itself."""
    block = re.search(r"```layers\n(.*?)```", PAGE, re.DOTALL)
    assert block is not None
    lines = block[1].strip().splitlines()
    return {name.strip(): level for level, line in enumerate(lines) for name in line.split(",")}


@cache
def layer_of(module: str) -> str | None:
    return next((name for name in layers() if module == name or module.startswith(name + ".")), None)


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


@cache
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


def table_rows(page: str) -> list[tuple[list[str], str]]:
    """Return the rows of the tables that list paths: the paths of the first cell, and the second cell."""
    section = re.search(r"^## Folders\n(.*?)^## ", page, re.DOTALL | re.MULTILINE)
    assert section is not None
    rows = re.findall(r"^\| (`.*?) \| (.*?) *\|$", section[1], re.MULTILINE)
    return [(re.findall(r"`([^`]+)`", cell), words) for cell, words in rows]


def listed_paths(page: str) -> set[str]:
    return {path for paths, _ in table_rows(page) for path in paths}


def folders() -> set[str]:
    """Return the folders of the package, with a slash at the end, relative to the package.

    A folder that only has ``__pycache__`` left after a move does not count, nor does the built dashboard.
    """
    files = (path.relative_to(PACKAGE) for path in PACKAGE.rglob("*") if path.is_file())
    found = {path.parent for path in files if not {"__pycache__", "dashboard"} & set(path.parts)}
    return {f"{path.as_posix()}/" for path in found if path != Path()}


def missing_folders(page: str) -> set[str]:
    """Return the folders that no row lists. A ``*`` stands for the name of one folder."""
    listed = [path for path in listed_paths(page) if path.endswith("/")]
    patterns = [re.compile(re.escape(path).replace(r"\*", "[^/]+")) for path in listed]
    return {folder for folder in folders() if not any(pattern.fullmatch(folder) for pattern in patterns)}


def unknown_paths(page: str) -> set[str]:
    """Return the listed folders and modules that do not exist."""
    return {
        path
        for path in listed_paths(page)
        if not any(found.is_dir() == path.endswith("/") for found in PACKAGE.glob(path))
    }


def test_the_page_lists_every_folder_with_its_concept() -> None:
    assert missing_folders(PAGE) == set()
    assert [paths for paths, words in table_rows(PAGE) if not words] == []


def test_the_page_lists_no_folder_or_module_that_does_not_exist() -> None:
    assert unknown_paths(PAGE) == set()
    assert {path for path in listed_paths(PAGE) if not path.endswith((".py", "/"))} == set()


def test_the_checks_find_a_folder_that_is_not_listed_and_a_module_that_is_gone() -> None:
    page = "## Folders\n| `core/`, `cli/*/` | values |\n| `core/gone.py` | lost |\n| `no/` | |\n## Next\n"
    assert {"rules/", "stores/redis/lua/"} <= missing_folders(page)
    assert not {"core/", "cli/commands/"} & missing_folders(page)
    assert unknown_paths(page) == {"core/gone.py", "no/"}


def test_every_path_in_the_text_exists() -> None:
    """Paths are relative to the package or to the repository, or name a module of a layer's folder."""
    paths = set(re.findall(r"`([\w./*]+(?:\.py|/))`", PAGE)) - listed_paths(PAGE)
    anywhere = {path.name for path in modules()}
    assert {
        path
        for path in paths
        if not any(PACKAGE.glob(path)) and not any(ROOT.glob(path)) and path not in anywhere
    } == set()


def test_only_the_timeline_imports_numpy() -> None:
    importers = set()
    for path in modules():
        if "numpy" in {name.split(".")[0] for name in imported(path.read_text())}:
            importers.add(module_name(path))
    assert importers
    assert all(name.startswith("evenbeat.timeline.") for name in importers)


def test_a_snapshot_is_made_queried_and_swapped_without_numpy() -> None:
    """Only planning and the forecast need it, and import it inside functions."""
    for module in ("snapshot", "timeline", "columns", "extra", "__init__"):
        tree = ast.parse((SOURCE / "evenbeat/timeline" / f"{module}.py").read_text())
        at_import = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        names = set().union(*(imported(ast.unparse(node)) for node in at_import))
        assert not names & {"numpy", "evenbeat.timeline.plan", "evenbeat.timeline.numpy_columns"}, module


def test_importing_evenbeat_imports_neither_numpy_nor_the_command_line() -> None:
    code = "import evenbeat, sys; print(sorted({'numpy', 'rich', 'click'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
