"""Try mutants in a copy of the tree: run the tests that execute the changed lines, until one fails."""

from __future__ import annotations

import compileall
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from tests import servers
from tests.mutation.mutants import Mutant, find_mutants, is_valid, mutated, read_source
from tests.mutation.suites import Suite

ROOT = Path(__file__).parents[2]
HOME = ROOT / "build" / "mutants"
# Seconds, and a factor of the measured duration of the tests: the machine may be busier by now.
_PATIENCE, _TIMES = 15.0, 2.0


class Result(NamedTuple):
    id: str
    module: str
    outcome: str
    """caught, timeout, survived, untested (no test executes the line), or invalid (it can't be compiled)."""
    by: str
    took: float

    @property
    def survived(self) -> bool:
        return self.outcome in ("survived", "untested")

    @property
    def is_mutant(self) -> bool:
        return self.outcome != "invalid"


class Results:
    """The results of all mutants so far, the newest last. A run that ends early loses none."""

    def __init__(self) -> None:
        HOME.mkdir(parents=True, exist_ok=True)
        self._path = HOME / "results.jsonl"
        self._lock = threading.Lock()
        self._known: dict[str, Result] = {}
        if self._path.exists():
            for line in self._path.read_text().splitlines():
                result = Result(**json.loads(line))
                self._known[result.id] = result

    def get(self, mutant_id: str) -> Result | None:
        return self._known.get(mutant_id)

    def add(self, result: Result) -> None:
        with self._lock, self._path.open("a") as file:
            self._known[result.id] = result
            print(json.dumps(result._asdict()), file=file)


class _Measured(NamedTuple):
    took: float
    lines: dict[str, set[int]]


class _Worker:
    """Two processes in a copy of the tree, one for each way of trying a mutant."""

    def __init__(self, number: int, environment: dict[str, str], tests: Sequence[str]) -> None:
        self._folder = HOME / f"copy-{os.getpid()}-{number}"
        shutil.rmtree(self._folder, ignore_errors=True)
        shutil.copytree(
            ROOT,
            self._folder,
            symlinks=True,
            ignore=shutil.ignore_patterns(".*", "build", "dist", "ui", "bench", "__pycache__"),
        )
        # Modules are compiled once. A mutated module has no compiled file: Python would take one that was
        # written in the same second, for a source of the same length, as valid.
        compileall.compile_dir(self._folder / "src", quiet=2)
        path = os.pathsep.join((str(self._folder / "src"), str(self._folder)))
        self._environment = {**environment, "PYTHONPATH": path}
        self._output = HOME / f"output-{os.getpid()}-{number}"
        self._sources: dict[str, str] = {}
        self._collected = self._start("collected", *tests)
        self._plain = self._start("plain")

    def mutants(self, modules: Sequence[str]) -> list[Mutant]:
        """Find the mutants in the copy: the tree itself may be edited meanwhile."""
        return [mutant for module in modules for mutant in find_mutants(module, self._source(module))]

    def _source(self, module: str) -> str:
        if module not in self._sources:
            self._sources[module] = read_source(self._folder, module)
        return self._sources[module]

    def measure(self, modules: Sequence[str]) -> dict[str, Any]:
        return self._ask(self._collected, {"measure": True, "modules": modules, "timeout": 1800})

    def attempt(self, mutant: Mutant, tests: Sequence[str], timeout: float) -> dict[str, Any]:
        file = self._folder / "src" / "evenbeat" / mutant.module
        original = self._source(mutant.module)
        source = mutated(original, mutant)
        if not is_valid(mutant.module, source):
            return {"code": -3, "failed": "", "took": 0.0}
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            compiled.unlink()
        # Also if a function is replaced in place: tests start processes that import the file.
        file.write_text(source)
        job = {
            "tests": tests,
            "timeout": timeout,
            "file": str(file),
            "place": mutant.place,
            "source": source,
            "imported": mutant.imported,
        }
        try:
            if file.suffix == ".py":
                answer = self._ask(self._collected, job)
                if answer["code"] != -2 and (answer["code"] != 0 or not mutant.imported):
                    return answer
            return self._ask(self._plain, job)
        finally:
            file.write_text(original)

    def _start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.mutation.worker", *words],
            cwd=self._folder,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self._environment,
        )

    def _ask(self, process: subprocess.Popen[str], job: dict[str, Any]) -> dict[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        print(json.dumps({**job, "output": str(self._output)}), file=process.stdin, flush=True)
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker in {self._folder} ended; see {self._output}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        for process in (self._collected, self._plain):
            assert process.stdin is not None
            process.stdin.close()
            process.wait(30)
        shutil.rmtree(self._folder, ignore_errors=True)


def run(suite: Suite, mutants: Sequence[Mutant], results: Results, count: int) -> None:
    tests = [test for test in suite.tests if (ROOT / test.split("::")[0]).exists()]
    environment = {key: value for key, value in os.environ.items() if key != "PYTEST_ADDOPTS"}
    for name in suite.servers:
        environment[f"EVENBEAT_TEST_{name.upper()}_URL"] = servers.shared(name).url
    workers = [_Worker(number, environment, tests) for number in range(1, count + 1)]
    try:
        measured = _measure(suite, workers[0])
        todo: SimpleQueue[Mutant] = SimpleQueue()
        wanted = {mutant.id for mutant in mutants}
        mutants = [mutant for mutant in workers[0].mutants(suite.modules) if mutant.id in wanted]
        for mutant in mutants:
            todo.put(mutant)
        tally = _Tally(suite.name, len(mutants))
        threads = [
            threading.Thread(target=_work, args=(worker, todo, measured, results, tally))
            for worker in workers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        tally.end()
    finally:
        for worker in workers:
            worker.close()
        servers.stop_shared()


def _measure(suite: Suite, worker: _Worker) -> dict[str, _Measured]:
    print(f"{suite.name}: measuring which test runs which line …", flush=True)
    answer = worker.measure(suite.modules)
    if "tests" not in answer:
        raise RuntimeError(f"{suite.name}: the tests could not be measured: {answer}")
    if answer["failed"]:
        print(f"{suite.name}: not used, since they fail without a mutant: {', '.join(answer['failed'])}")
    return {
        test: _Measured(result["took"], {module: set(lines) for module, lines in result["lines"].items()})
        for test, result in answer["tests"].items()
        if test not in answer["failed"]
    }


def _work(
    worker: _Worker,
    todo: SimpleQueue[Mutant],
    measured: dict[str, _Measured],
    results: Results,
    tally: _Tally,
) -> None:
    while True:
        try:
            mutant = todo.get_nowait()
        except Empty:
            return
        result = _try(worker, mutant, measured)
        results.add(result)
        tally.note(mutant, result)


def _try(worker: _Worker, mutant: Mutant, measured: dict[str, _Measured]) -> Result:
    tests = [test for test, what in measured.items() if mutant.imported or _runs(what, mutant)]
    covered = bool(tests)
    if not covered:
        # The line may have run when the module was imported, to create a constant.
        tests, mutant = list(measured), mutant._replace(imported=True)
    # Quick tests first: most mutants are caught by many tests.
    tests.sort(key=lambda test: measured[test].took)
    limit = _PATIENCE + _TIMES * sum(measured[test].took for test in tests)
    answer = worker.attempt(mutant, tests, limit)
    late = answer["failed"] == "timeout"
    outcomes = {0: "survived" if covered else "untested", -3: "invalid"}
    outcome = outcomes.get(answer["code"], "timeout" if late else "caught")
    return Result(mutant.id, mutant.module, outcome, answer["failed"], answer["took"])


def _runs(what: _Measured, mutant: Mutant) -> bool:
    lines = what.lines.get(mutant.module, ())
    return any(line in lines for line in range(mutant.line, mutant.last_line + 1))


class _Tally:
    def __init__(self, name: str, total: int) -> None:
        self._name = name
        self._total = total
        self._lock = threading.Lock()
        self._done = self._caught = 0
        self._begun = time.monotonic()

    def note(self, mutant: Mutant, result: Result) -> None:
        with self._lock:
            self._done += 1
            self._caught += not result.survived
            if result.survived:
                print(
                    f"{result.outcome}: {mutant.id} {mutant.module}:{mutant.line} {mutant.change}", flush=True
                )
            if self._done % 50 == 0:
                self.end()

    def end(self) -> None:
        took = time.monotonic() - self._begun
        print(
            f"{self._name}: {self._caught} of {self._done} caught, {self._total} in all, {took:.0f} s",
            flush=True,
        )
