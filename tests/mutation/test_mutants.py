"""The mutation tool itself: which mutants it finds, and how it replaces code."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.mutation import runner
from tests.mutation.mutants import find_mutants, mutated
from tests.mutation.report import Reason, stale, write_page
from tests.mutation.runner import ROOT
from tests.mutation.suites import SUITES, Suite
from tests.mutation.worker import replace_code


def changes(source: str, module: str = "some.py") -> list[str]:
    return [mutant.change for mutant in find_mutants(module, textwrap.dedent(source))]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("return a < b", ["return a < b → return None", "a < b → a <= b", "a < b → a >= b"]),
        ("return a is None", ["return a is None → return None", "a is None → a is not None"]),
        ("if a: pass", ["a → not a"]),
        (
            "b = a and c or d",
            [
                "a and c or d → (a and c) and d",
                "a and c or d → d",
                "a and c or d → a and c",
                "a and c → a or c",
                "a and c → c",
                "a and c → a",
            ],
        ),
        ("b = not a", ["not a → a"]),
        ("b = a + 7", ["a + 7 → a - 7", "7 → 8"]),
        ("b = min(a, c)", ["min(a, c) → max(a, c)"]),
        ("b = 'word'", ["'word' → 'wordXX'"]),
        ("a.b = c", ["a.b = c → removed"]),
        ("a += c", ["a += c → removed", "a += c → a -= c"]),
        ("raise ValueError('text')", ["raise ValueError('text') → removed"]),
        ("a(b=c)", ["a(b=c) → removed", "a(…, b=c) → without it"]),
        ("_log.info('text', extra={'a': 1})", []),
        ("assert a == 1", []),
        ("'''a docstring'''", []),
    ],
)
def test_each_kind_of_mutant_is_found(line: str, expected: list[str]) -> None:
    assert changes(f"def f(a, b, c, d):\n    {line}\n") == expected


def test_an_sql_text_is_mutated_by_its_operators_and_conditions() -> None:
    source = 'SOME = """SELECT a FROM t WHERE b <= ? AND c IS NULL ORDER BY d LIMIT 1"""'
    mutants = find_mutants("some.py", source)
    sources = [mutated(source, mutant) for mutant in mutants]
    assert len({mutant.id for mutant in mutants}) == len(set(sources)) == len(mutants)
    for expected in (
        "WHERE b < ? AND",
        "WHERE b > ? AND",
        "c IS NOT NULL",
        "WHERE b <= ? OR c",
        "WHERE c IS NULL ORDER",
        "WHERE b <= ?  ORDER BY d LIMIT 1",
        "ORDER BY d DESC LIMIT",
        "LIMIT 2",
    ):
        assert any(expected in text for text in sources), expected


def test_lua_is_mutated_line_by_line() -> None:
    found = changes("if a <= 1 and b then\n  redis.call('DEL', key)  -- a < b\nend\n", "some.lua")
    assert len(found) == 5


def test_ids_stay_when_other_lines_change() -> None:
    one = find_mutants("some.py", "def f(a):\n    return a < 1\n")
    two = find_mutants("some.py", "# more\n\n\ndef f(a):\n    return a < 1\n")
    assert [mutant.id for mutant in one] == [mutant.id for mutant in two]


def test_an_accepted_entry_is_stale_once_its_code_has_changed() -> None:
    (mutant,) = find_mutants("some.py", "LIMIT = 7")
    accepted = [Reason("a chosen number", {mutant.id: "some.py LIMIT", "0123456789ab": "some.py GONE"})]
    suite = Suite("some", ("some.py",), ())
    assert list(stale([(suite, [mutant])], accepted)) == ["0123456789ab some.py GONE"]


def test_the_page_keeps_the_rows_of_modules_that_were_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "HOME", tmp_path)
    mutants = {name: find_mutants(name, "LIMIT = 7") for name in ("one.py", "two.py", "three.py")}
    chosen = [(Suite("some", tuple(mutants), ()), [mutant for found in mutants.values() for mutant in found])]
    results = runner.Results()
    (mutant,) = mutants["one.py"]
    results.add(runner.Result(mutant.id, "one.py", "caught", "a test", 0.1))
    before = """
| `one.py` | 9 | 9 | 1 | 0 | 0 | 8 | 11 % | 2026-01-01 |
| `two.py` | 1,200 | all | 1,100 | 3 | 60 | 40 | 92 % | 2026-01-02 |
"""
    page = write_page(chosen, results, [], before)
    assert "| `one.py` | 1 | all | 1 | 0 | 0 | 0 | 100 % |" in page
    assert "| `two.py` | 1,200 | all | 1,100 | 3 | 60 | 40 | 92 % | 2026-01-02 |" in page
    assert "| **modules tried almost in full** | 1,201 | all | 1,101 | 3 | 60 | 40 | 92 % |" in page
    assert "Not tried in their present form: `three.py` (1)." in page


def test_every_module_of_the_suites_exists_and_has_tests() -> None:
    for suite in SUITES:
        for module in suite.modules:
            assert (ROOT / "src" / "evenbeat" / module).exists()
        for test in suite.tests:
            assert (ROOT / test.split("::")[0]).exists()


def test_a_function_is_given_its_mutated_code_in_place(tmp_path: Path) -> None:
    # In a process of its own: the code of this one stays as it is.
    script = f"""
        import sys
        sys.path[:0] = {sys.path!r}
        from pathlib import Path
        from evenbeat.core import durations
        from tests.mutation.worker import replace_code
        file = Path(durations.__file__)
        mutant = "def write_duration(*_): return 'mutated'\\ndef rest("
        source = file.read_text().replace("def write_duration(", mutant)
        assert replace_code(file, "write_duration", source)
        assert durations.write_duration(1) == "mutated"
        from evenbeat.triggers import every
        assert str(every("1s")) == "every mutated"
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, cwd=tmp_path, timeout=60)


def test_a_constant_and_a_default_are_replaced_in_place(tmp_path: Path) -> None:
    script = f"""
        import sys
        sys.path[:0] = {sys.path!r}
        from pathlib import Path
        from evenbeat.node import ticker
        from evenbeat.stores.memory import MemoryStore
        from tests.mutation.worker import replace_values
        file = Path(ticker.__file__)
        assert not replace_values(file, file.read_text())
        assert replace_values(file, file.read_text().replace("BATCH = 500", "BATCH = 501"))
        assert ticker.BATCH == 501
        from evenbeat.app import runs
        file = Path(runs.__file__)
        assert replace_values(file, file.read_text().replace("limit: int = 100", "limit: int = 101"))
        assert runs.Runs.list.__kwdefaults__["limit"] == 101
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, cwd=tmp_path, timeout=60)


def test_a_function_that_is_not_loaded_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "some.py"
    assert not replace_code(file, "f", "def f(): return 1\n")
