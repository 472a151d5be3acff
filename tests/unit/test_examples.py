"""Examples and pages: none is missing from its list, and they use what is public."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "examples" / "README.md"])
PUBLIC = {
    "evenbeat",
    "evenbeat.documents",
    "evenbeat.stores.base",
    "evenbeat.testing",
    "evenbeat.timeline",
    "evenbeat.web",
}
CODE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINKS = re.compile(r"\]\(([^)#\s]+)(?:#([^)\s]+))?\)")


def imported(source: str) -> Iterator[str]:
    """Yield the modules of Evenbeat that a program imports from."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def private(source: str) -> set[str]:
    ours = {name for name in imported(source) if name.partition(".")[0] == "evenbeat"}
    return ours - PUBLIC


def code_of(page: str) -> Iterator[str]:
    """Yield the Python blocks that a reader sees; of doctests, the lines behind the prompts."""
    for block in CODE.findall(page):
        if block.startswith(">>>"):
            yield "\n".join(re.findall(r"^(?:>>>|\.\.\.) ?(.*)$", block, re.MULTILINE))
        else:
            yield block


def anchors(page: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_list_names_each_example_once() -> None:
    listed = re.findall(r"\]\((\w+\.py)\)", (ROOT / "examples" / "README.md").read_text())
    assert sorted(listed) == [example.name for example in EXAMPLES]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_says_what_it_shows_and_how_to_run_it(example: Path) -> None:
    words = ast.get_docstring(ast.parse(example.read_text())) or ""
    assert f"python examples/{example.name}" in words


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_imports_public_modules_alone(example: Path) -> None:
    assert private(example.read_text()) == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_imports_public_modules_alone(page: Path) -> None:
    assert {name for block in code_of(page.read_text()) for name in private(block)} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target, anchor in LINKS.findall(text):
        if target.startswith("http"):
            continue
        found = (page.parent / target).resolve()
        assert found.exists(), target
        assert not anchor or anchor in anchors(found.read_text()), f"{target}#{anchor}"


def test_a_private_import_is_noticed() -> None:
    lines = ("from evenbeat.rules import firing", "import evenbeat.node.worker", "from evenbeat import cron")
    page = "\n".join(("```python", *lines, "```", ""))
    assert [private(block) for block in code_of(page)] == [{"evenbeat.rules", "evenbeat.node.worker"}]
