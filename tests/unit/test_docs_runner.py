"""The runner of the documentation's examples: right examples pass, and wrong ones fail."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

TICK = "$ evenbeat next 'at 2026-03-01T09:00Z' -n 1 --from 2026-03-01T08:00Z\n"
HEADING = "Once, at 2026-03-01T09:00:00Z\n"
ROW = "1  Sun 2026-03-01 09:00 +00:00  1 h\n"
PRINTED = f"""\
{HEADING}
#  UTC                           in
───────────────────────────────────
{ROW}"""
VERSION = "$ evenbeat --version\nevenbeat ...\n\n"
TYPO = "$ evenbeat nxet\nerror: no such command 'nxet': did you mean next?\n$ echo $?\n"

RIGHT = {
    "the exact output": TICK + PRINTED,
    "the rest of a line left open": TICK + PRINTED.replace(HEADING, "Once, ...\n"),
    "lines left open at the end": TICK + HEADING + "...\n",
    "lines left open at the start": TICK + "...\n" + ROW,
    "everything left open": TICK + "...\n",
    "two commands": VERSION + TICK + PRINTED,
    "an exit code": TYPO + "2\n",
    "a command that is only shown": "$ pip install evenbeat\n",
}
WRONG = {
    "a wrong word": TICK + PRINTED.replace("Once", "Twice"),
    "a wrong digit": TICK + PRINTED.replace("09:00 ", "09:01 "),
    "a line too many": TICK + PRINTED + "one more line\n",
    "a line too few": TICK + PRINTED.replace(ROW, ""),
    "a missing blank line": TICK + PRINTED.replace("\n\n", "\n"),
    "no output at all": TICK,
    "an open end before a wrong line": TICK + HEADING + "...\n" + ROW.replace("1 ", "2 ", 1),
    "dots inside a line": TICK + PRINTED.replace("Once, at", "On..., at"),
    "a wrong second command": VERSION + TICK + "no\n",
    "a wrong exit code": TYPO + "0\n",
    "output of a command that is not run": "$ evenbet next\nSome output\n",
    "a pipe": "$ evenbeat next '* * * * *' | head -1\nEvery minute (UTC)\n",
    "output without a command": "Every minute (UTC)\n",
}
RIGHT_PYTHON = {
    "statements": "answer = 6 * 7\nassert answer == 42\n",
    "prompts": ">>> answer = 6 * 7\n>>> print('the answer:', answer)\nthe ...: 42\n",
    "names of an earlier block": "answer = 42\n```\n\nWords.\n\n```python\n>>> answer\n42\n",
}
WRONG_PYTHON = {
    "a false assertion": "assert 1 == 2\n",
    "a wrong answer at a prompt": ">>> 1 + 1\n3\n",
    "an error": "import no_such_module\n",
    "prompts after a comment": "# first\n>>> 1 + 1\n2\n",
}


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Return the titles of the documents that failed, from one run over a document for each case."""
    home = tmp_path_factory.mktemp("documents")
    (home / "conftest.py").write_bytes((ROOT / "conftest.py").read_bytes())
    deep = home / "docs" / "very" / "deep"
    deep.mkdir(parents=True)
    titles = {}
    for language, cases in (("console", RIGHT | WRONG), ("python", RIGHT_PYTHON | WRONG_PYTHON)):
        for title, block in cases.items():
            name = f"{title.replace(' ', '-')}.md"
            titles[name] = title
            text = f"# {title}\n\n```{language}\n{block}```\n"
            (deep / name).write_text(text, encoding="utf-8")
    without = [f"-pno:{plugin}" for plugin in ("doctest", "cacheprovider", "schemathesis", "valkey")]
    command = [sys.executable, "-m", "pytest", *without, "-rA", "docs"]
    done = subprocess.run(command, cwd=home, capture_output=True, encoding="utf-8", check=False)
    results = re.findall(r"^(PASSED|FAILED) docs/very/deep/(.*?\.md)::", done.stdout, re.MULTILINE)
    assert {name for _, name in results} == set(titles), done.stdout
    return {titles[name] for result, name in results if result == "FAILED"}


@pytest.mark.parametrize("title", [*RIGHT, *RIGHT_PYTHON])
def test_a_right_example_passes(failed: set[str], title: str) -> None:
    assert title not in failed


@pytest.mark.parametrize("title", [*WRONG, *WRONG_PYTHON])
def test_a_wrong_example_fails(failed: set[str], title: str) -> None:
    assert title in failed


def test_examples_import_public_modules_only() -> None:
    """Whatever documents import from Evenbeat, users will: only these modules keep their names."""
    public = {
        "evenbeat",
        "evenbeat.documents",
        "evenbeat.testing",
        "evenbeat.stores.base",
        "evenbeat.timeline",
        "evenbeat.web",
    }
    pattern = r"^[ \t>.]*(?:from[ \t]+(evenbeat[\w.]*)[ \t]+import[ \t]+(\w+)|import[ \t]+(evenbeat[\w.]*))"
    for document in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        # Comments set the scene for an example; readers don't see them.
        visible = re.sub(r"<!--.*?-->", "", document.read_text("utf-8"), flags=re.DOTALL)
        for module, name, alone in re.findall(pattern, visible, re.MULTILINE):
            assert (module or alone) in public, f"{document.relative_to(ROOT)}: {module or alone}"
            # `from evenbeat import timeline` imports a module as well.
            is_module = module == "evenbeat" and (ROOT / "src/evenbeat" / name).is_dir()
            assert not is_module or f"evenbeat.{name}" in public, f"{document.relative_to(ROOT)}: {name}"


def test_the_runner_ignores_no_block_of_our_documents() -> None:
    """The runner knows the words ``python`` and ``console`` alone; ``python title=…`` would not run."""
    for document in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        text = document.read_text("utf-8")
        languages = re.findall(r"^[ \t]*```+[ \t]*((?:py|console|shell|bash|sh\b).*)$", text, re.MULTILINE)
        assert set(languages) <= {"python", "console"}, document
