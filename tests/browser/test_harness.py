"""The harness notices what a page must not do, and the list of quick tests names tests that exist."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser import lengths
from tests.browser.dashboard import Complaints, Dashboard, opened


@pytest.mark.parametrize(
    "script",
    [
        "console.error('broken')",
        "setTimeout(() => { throw new Error('broken') })",
        "alert(1)",
        "fetch('http://127.0.0.1:9/').catch(() => 0)",
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'alert(1)'}))",
        "document.body.innerHTML = '<b>x</b>'",
        "document.body.insertAdjacentHTML('beforeend', '<style>a{}</style>')",
    ],
)
def test_a_page_that_misbehaves_is_noticed(browser: Browser, dashboard: Dashboard, script: str) -> None:
    complaints = Complaints()
    with opened(browser, dashboard, complaints) as context:
        page = context.new_page()
        page.goto(dashboard.url)
        page.evaluate(f"() => {{ try {{ {script} }} catch (error) {{ console.error(String(error)) }} }}")
        page.wait_for_timeout(100)  # the browser reports blocked content a moment later
    assert complaints.unexpected


def test_the_list_of_quick_tests_names_tests_that_exist() -> None:
    collect = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "."]
    done = subprocess.run(
        collect,
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    found: dict[str, set[str]] = {}
    for line in done.stdout.splitlines():
        path, mark, name = line.partition("::")
        if mark:
            names = found.setdefault(Path(path).stem, set())
            names |= {name, name.partition("[")[0]}
    assert {
        (module, name) for module, names in lengths.QUICK.items() for name in names - found.get(module, set())
    } == set()
