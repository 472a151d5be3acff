"""Try the wheel that ``make release`` built, in an environment that has nothing else.

    .venv-release/bin/python -I tests/smoke.py dist        the wheel without extras
    .venv-release/bin/python -I tests/smoke.py dist web    the dashboard; needs the extra web

``-I`` keeps this folder and PYTHONPATH off the path, so that the installed package is what is imported.
"""

from __future__ import annotations

import gzip
import importlib
import os
import re
import subprocess
import sys
import tarfile
from http.client import HTTPConnection
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urljoin, urlsplit
from zipfile import ZipFile

import evenbeat

PUBLIC = ("evenbeat", "evenbeat.documents", "evenbeat.stores.base", "evenbeat.testing", "evenbeat.timeline")
COMMAND = str(Path(sys.executable).with_name("evenbeat"))
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "EVENBEAT"))
}
DEADLINE = 120
# Bytes of script, style and icon, compressed.
LARGEST_PAGE = 80 * 1024
PAGE_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
APP = """
from evenbeat import Scheduler

app = Scheduler("sqlite:///smoke.db")


@app.task(executor="process")
def double(number: int) -> int:
    return 2 * number
"""


def check_archives(dist: Path) -> None:
    """Check that each archive has what it needs, and that tests and benchmarks stay out of the wheel."""
    (wheel,) = dist.glob("*.whl")
    (sdist,) = dist.glob("*.tar.gz")
    inside = ZipFile(wheel).namelist()
    assert {"evenbeat/py.typed", "evenbeat/web/dashboard/index.html"} <= set(inside)
    assert any(name.endswith("/licenses/LICENSE") for name in inside)
    assert {name.split("/")[0].partition("-")[0] for name in inside} == {"evenbeat", "_evenbeat_pytest.py"}
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "docs/index.md", "pyproject.toml"} <= names
    assert {"hatch_build.py", "ui/package.json", "src/evenbeat/web/dashboard/index.html"} <= names
    assert not any("node_modules" in name for name in names)


def check_imports() -> None:
    """Check that the installed package is the one that is imported, and that each public name is there."""
    assert evenbeat.__file__ is not None
    assert Path(evenbeat.__file__).is_relative_to(sys.prefix), evenbeat.__file__
    assert evenbeat.__version__ == version("evenbeat")
    for name in PUBLIC:
        importlib.import_module(name)
    for name in evenbeat.__all__:
        getattr(evenbeat, name)


def run(*arguments: str, code: int = 0) -> str:
    """Run an ``evenbeat`` command, check its exit code, and return what it prints."""
    done = subprocess.run(
        [COMMAND, *arguments],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == code, done.stdout
    return done.stdout


def check_a_node() -> None:
    """Execute a task in a process of its own, under ``evenbeat run``."""
    Path("app.py").write_text(APP)
    app = evenbeat.Scheduler("sqlite:///smoke.db")
    wanted = app.enqueue("double", {"number": 21})
    node = subprocess.Popen([COMMAND, "run", "app.py"], env=ENVIRONMENT)
    try:
        assert app.runs.join(wanted.id, DEADLINE).result == 42
    finally:
        node.terminate()
        assert node.wait(DEADLINE) == 0
        app.close()


def check_dashboard() -> None:
    """Serve the dashboard with ``evenbeat web``, and fetch the page and each file that it names."""
    run("db", "upgrade", "--store", "sqlite:///web.db")
    command = [COMMAND, "web", "--no-auth", "--web-port", "0", "--store", "sqlite:///web.db"]
    with subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            told = server.stderr.readline()
            address = re.search(r"http://[\w.]+:\d+", told)
            assert address is not None, told + server.stderr.read()
            root = f"{address[0]}/"
            page = fetch(root, "text/html").decode()
            names = re.findall(r'(?:src|href)="([^"]+)"', page)
            assert {Path(name).suffix for name in names} == PAGE_TYPES.keys(), page
            assert not any(urlsplit(name).netloc or name.startswith("/") for name in names), page
            files = [fetch(urljoin(root, name), PAGE_TYPES[Path(name).suffix]) for name in names]
            assert sum(len(gzip.compress(content)) for content in files) < LARGEST_PAGE
            fetch_imported(root, {Path(name).name: file for name, file in zip(names, files, strict=True)})
        finally:
            server.terminate()
    assert server.returncode == 0


def fetch_imported(root: str, scripts: dict[str, bytes]) -> None:
    """Fetch the scripts that these import, and those that they import: each page is a file of its own."""
    fetched = dict(scripts)
    waiting = [name for name in scripts if name.endswith(".js")]
    while waiting:
        for name in re.findall(r'"\./([\w-]+\.js)"', fetched[waiting.pop()].decode()):
            if name not in fetched:
                fetched[name] = fetch(urljoin(root, f"assets/{name}"), PAGE_TYPES[".js"])
                waiting.append(name)
    assert len(fetched) > len(scripts), "no script imports another one"


def fetch(url: str, media_type: str) -> bytes:
    """Return what a GET answers; it must succeed and be of this type."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.netloc, timeout=DEADLINE)
    try:
        connection.request("GET", parts.path)
        answer = connection.getresponse()
        content = answer.read()
    finally:
        connection.close()
    assert answer.status == 200, (url, answer.status, content)
    assert answer.headers.get_content_type() == media_type, (url, answer.headers.get_content_type())
    assert content, url
    return content


def check_extra_web(dist: Path) -> None:
    """Check the archives, and the dashboard of the installed wheel."""
    check_archives(dist)
    check_imports()
    with TemporaryDirectory(prefix="evenbeat-smoke-") as folder:
        os.chdir(folder)
        check_dashboard()
        os.chdir("/")
    sys.stdout.write(f"evenbeat {evenbeat.__version__}: the wheel serves the dashboard\n")


def main(dist: Path) -> None:
    check_archives(dist)
    check_imports()
    with TemporaryDirectory(prefix="evenbeat-smoke-") as folder:
        os.chdir(folder)
        assert run("--version").strip() == f"evenbeat {evenbeat.__version__}"
        check_a_node()
        run("demo", "--for", "5s")
        assert "every" in run("schedules", "list", "--store", "sqlite:///evenbeat-demo.db")
        # Without extras there is no numpy, and the forecast names the extra that brings it.
        assert "evenbeat[timeline]" in run("forecast", "--store", "sqlite:///evenbeat-demo.db", code=1)
        os.chdir("/")
    sys.stdout.write(f"evenbeat {evenbeat.__version__}: the wheel installs, imports and runs\n")


if __name__ == "__main__":
    archives = Path(sys.argv[1]).resolve()
    if sys.argv[2:] == ["web"]:
        check_extra_web(archives)
    else:
        main(archives)
