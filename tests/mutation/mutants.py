"""Find the mutants of a source file: each is one small change that a test should catch.

Not mutated, since no test should pin them: docstrings, annotations, assertions (they narrow types), the texts
of errors and log lines, ``__repr__``, and code that only a type checker reads.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tests.mutation import texts

_ORDER: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any"}
# MongoDB's operators are strings.
_OPERATORS = {
    "$lt": "$lte",
    "$lte": "$lt",
    "$gt": "$gte",
    "$gte": "$gt",
    "$eq": "$ne",
    "$ne": "$eq",
    "$in": "$nin",
    "$nin": "$in",
    "$min": "$max",
    "$max": "$min",
    "$and": "$or",
    "$or": "$and",
    "$add": "$subtract",
}

N = TypeVar("N", bound=ast.AST)


class Mutant(NamedTuple):
    """One change: the bytes from ``start`` to ``end`` become ``text``."""

    module: str
    """The file, below src/evenbeat."""
    place: str
    """The function or constant that contains the change."""
    line: int
    last_line: int
    change: str
    """The old and the new code, for people."""
    start: int
    end: int
    text: str
    imported: bool
    """Whether the code runs when the module is imported: then any test may catch the change."""
    id: str


class _Change(NamedTuple):
    place: str
    node: ast.AST
    change: str
    start: int
    end: int
    text: str
    imported: bool
    statement: str


def find_mutants(module: str, source: str) -> list[Mutant]:
    """Return the mutants of a module, in the order of its lines. An id stays when other lines of the file
    change."""
    found = _lua_changes(source) if module.endswith(".lua") else _Finder(source).changes()
    seen: Counter[str] = Counter()
    mutants: list[Mutant] = []
    for place, node, change, start, end, text, imported, statement in found:
        key = "\n".join((module, place, statement, change))
        seen[key] += 1
        digest = hashlib.sha256(f"{key}\n{seen[key]}".encode()).hexdigest()[:12]
        line, last = getattr(node, "lineno", 1), getattr(node, "end_lineno", 1)
        mutants.append(Mutant(module, place, line, last, change, start, end, text, imported, digest))
    return mutants


def mutated(source: str, mutant: Mutant) -> str:
    raw = source.encode()
    return (raw[: mutant.start] + mutant.text.encode() + raw[mutant.end :]).decode()


def is_valid(module: str, source: str) -> bool:
    """Return whether a changed source can be compiled; otherwise it is not a mutant."""
    if module.endswith(".lua"):
        return True
    try:
        compile(source, module, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def read_source(root: Path, module: str) -> str:
    return (root / "src" / "evenbeat" / module).read_text()


class _Finder:
    def __init__(self, source: str) -> None:
        self._raw = source.encode()
        self._lines = [0]
        for line in self._raw.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._tree = ast.parse(source)

    def changes(self) -> Iterator[_Change]:
        yield from self._block(self._tree.body, "", True)

    # -- statements ----------------------------------------------------------------------------------------

    def _block(self, body: list[ast.stmt], place: str, imported: bool) -> Iterator[_Change]:
        for statement in body:
            yield from self._statement(statement, place, imported)

    def _statement(self, node: ast.stmt, place: str, imported: bool) -> Iterator[_Change]:
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.Assert, ast.Global, ast.Nonlocal)):
            return
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if node.name == "__repr__" or _is_overload(node):
                return
            inner = f"{place}.{node.name}" if place else node.name
            for default in [*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]:
                yield from self._expression(default, inner, node, True)
            yield from self._block(node.body, inner, False)
            return
        if isinstance(node, ast.ClassDef):
            if any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases):
                return
            yield from self._block(node.body, f"{place}.{node.name}" if place else node.name, imported)
            return
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        if not place and isinstance(node, (ast.Assign, ast.AnnAssign)):
            place = ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
            if place in ("__all__", "_log") or _is_type(node):
                return
        yield from self._removed(node, place, imported)
        yield from self._parts(node, place, imported)

    def _removed(self, node: ast.stmt, place: str, imported: bool) -> Iterator[_Change]:
        if isinstance(node, ast.Expr) and not _is_text(node.value) and not _is_log(node.value):
            if isinstance(node.value, (ast.Call, ast.Await)):
                yield self._gone(node, place, imported)
        elif isinstance(node, (ast.AugAssign, ast.Raise, ast.Delete)) or (
            isinstance(node, ast.Assign)
            and any(isinstance(target, (ast.Attribute, ast.Subscript)) for target in node.targets)
        ):
            yield self._gone(node, place, imported)
        elif (
            isinstance(node, ast.Return)
            and node.value is not None
            and not isinstance(node.value, ast.Constant)
        ):
            yield self._become(node, "return None", place, node, imported)
        elif isinstance(node, ast.Break):
            yield self._become(node, "continue", place, node, imported)
        elif isinstance(node, ast.Continue):
            yield self._become(node, "break", place, node, imported)

    def _parts(self, node: ast.stmt, place: str, imported: bool) -> Iterator[_Change]:
        if isinstance(node, ast.Expr) and (_is_text(node.value) or _is_log(node.value)):
            return
        if isinstance(node, ast.AugAssign):
            other = _ARITHMETIC.get(type(node.op))
            if other is not None:
                yield self._become(node, ast.unparse(_with(node, "op", other())), place, node, imported)
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "targets", "target", "optional_vars", "decorator_list", "returns"):
                continue
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, ast.stmt):
                    yield from self._statement(part, place, imported)
                elif isinstance(part, (ast.ExceptHandler, ast.match_case)):
                    yield from self._block(part.body, place, imported)
                elif isinstance(part, ast.withitem):
                    yield from self._expression(part.context_expr, place, node, imported)
                elif isinstance(part, ast.expr):
                    if isinstance(node, ast.Raise):
                        continue  # the text of an error
                    if field == "test":
                        yield from self._negated(part, place, node, imported)
                    yield from self._expression(part, place, node, imported)

    # -- expressions ---------------------------------------------------------------------------------------

    def _expression(
        self, node: ast.expr, place: str, statement: ast.stmt, imported: bool
    ) -> Iterator[_Change]:
        def become(new: ast.expr) -> _Change:
            return self._replaced(node, new, place, statement, imported)

        if isinstance(node, ast.JoinedStr):
            # Before Python 3.12, the positions of the expressions inside are wrong.
            yield from self._text(node, place, statement, imported)
            return
        if isinstance(node, ast.Lambda):
            yield from self._expression(node.body, place, statement, imported)
            return
        if isinstance(node, ast.Constant):
            yield from self._constant(node, place, statement, imported)
            return
        if isinstance(node, ast.Compare):
            for index, operator in enumerate(node.ops):
                for other in _ORDER[type(operator)]:
                    ops = [*node.ops[:index], other(), *node.ops[index + 1 :]]
                    yield become(_with(node, "ops", ops))
        elif isinstance(node, ast.BoolOp):
            swapped: ast.boolop = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield become(_with(node, "op", swapped))
            for index in range(len(node.values)):
                rest = [*node.values[:index], *node.values[index + 1 :]]
                yield become(rest[0] if len(rest) == 1 else _with(node, "values", rest))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
            yield become(node.operand)
        elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC and not _is_text(node.left):
            yield become(_with(node, "op", _ARITHMETIC[type(node.op)]()))
        elif isinstance(node, ast.IfExp):
            yield from self._negated(node.test, place, statement, imported)
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in _SWAPPED:
                yield become(_with(node, "func", ast.Name(_SWAPPED[node.func.id])))
            for index, keyword in enumerate(node.keywords):
                if keyword.arg is not None and keyword.arg not in ("extra", "hint", "strict"):
                    rest_of = [*node.keywords[:index], *node.keywords[index + 1 :]]
                    without = become(_with(node, "keywords", rest_of))
                    shown = (
                        f"{_short(ast.unparse(node.func))}(…, {_short(ast.unparse(keyword))}) → without it"
                    )
                    yield without._replace(change=shown)
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            for generator in node.generators:
                for test in generator.ifs:
                    yield from self._negated(test, place, statement, imported)
        for field, value in ast.iter_fields(node):
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, ast.keyword):
                    if part.arg not in ("hint", "extra", "strict"):
                        yield from self._expression(part.value, place, statement, imported)
                elif isinstance(part, ast.comprehension):
                    for inner in (part.iter, *part.ifs):
                        yield from self._expression(inner, place, statement, imported)
                elif isinstance(part, ast.expr) and field != "slice":
                    if not (isinstance(node, ast.Call) and _is_read_by_people(node, part)):
                        yield from self._expression(part, place, statement, imported)
                elif isinstance(part, ast.expr):
                    yield from self._slice(part, place, statement, imported)

    def _slice(self, node: ast.expr, place: str, statement: ast.stmt, imported: bool) -> Iterator[_Change]:
        if isinstance(node, ast.Slice):
            for part in (node.lower, node.upper, node.step):
                if part is not None:
                    yield from self._expression(part, place, statement, imported)
        else:
            yield from self._expression(node, place, statement, imported)

    def _negated(self, node: ast.expr, place: str, statement: ast.stmt, imported: bool) -> Iterator[_Change]:
        """Negate a plain condition; comparisons and the like have mutants of their own."""
        if isinstance(node, (ast.Compare, ast.BoolOp, ast.Constant)):
            return
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return
        yield self._replaced(node, ast.UnaryOp(ast.Not(), node), place, statement, imported)

    def _constant(
        self, node: ast.Constant, place: str, statement: ast.stmt, imported: bool
    ) -> Iterator[_Change]:
        value = node.value
        if isinstance(value, str):
            yield from self._text(node, place, statement, imported)
        elif isinstance(value, bool):
            yield self._replaced(node, ast.Constant(not value), place, statement, imported)
        elif isinstance(value, (int, float)):
            yield self._replaced(node, ast.Constant(value + 1), place, statement, imported)

    def _text(
        self, node: ast.Constant | ast.JoinedStr, place: str, statement: ast.stmt, imported: bool
    ) -> Iterator[_Change]:
        start, end = self._span(node)
        written = self._raw[start:end].decode()
        if texts.is_sql(written):
            for at, until, new in texts.sql_changes(written):
                before = start + len(written[:at].encode())
                after = start + len(written[:until].encode())
                shown = texts.shown(written, at, until, new)
                yield _Change(place, statement, shown, before, after, new, imported, _header(statement))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            new_text = _OPERATORS.get(node.value, f"{node.value}XX")
            yield self._replaced(node, ast.Constant(new_text), place, statement, imported)

    # -- changes -------------------------------------------------------------------------------------------

    def _replaced(
        self, node: ast.expr, new: ast.expr, place: str, statement: ast.stmt, imported: bool
    ) -> _Change:
        start, end = self._span(node)
        text = ast.unparse(new)
        change = f"{_short(ast.unparse(node))} → {_short(text)}"
        if not isinstance(new, (ast.Constant, ast.Name, ast.Call)):
            text = f"({text})"
        where = node if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)) else statement
        return _Change(place, where, change, start, end, text, imported, _header(statement))

    def _gone(self, node: ast.stmt, place: str, imported: bool) -> _Change:
        start, end = self._span(node)
        return _Change(
            place, node, f"{_short(ast.unparse(node))} → removed", start, end, "pass", imported, _header(node)
        )

    def _become(self, node: ast.stmt, text: str, place: str, statement: ast.stmt, imported: bool) -> _Change:
        start, end = self._span(node)
        change = f"{_short(ast.unparse(node))} → {_short(text)}"
        return _Change(place, node, change, start, end, text, imported, _header(statement))

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self._lines[node.lineno - 1] + node.col_offset,
            self._lines[node.end_lineno - 1] + node.end_col_offset,
        )


def _lua_changes(source: str) -> Iterator[_Change]:
    place = "script"
    offset = 0
    for number, line in enumerate(source.splitlines(keepends=True), 1):
        if line.startswith(("local function ", "function ")):
            place = line.split("function ", 1)[1].split("(")[0]
        node = ast.Pass(lineno=number, col_offset=0, end_lineno=number, end_col_offset=0)
        for at, until, new in texts.lua_changes(line):
            start = offset + len(line[:at].encode())
            end = offset + len(line[:until].encode())
            change = texts.shown(line, at, until, new)
            yield _Change(place, node, change, start, end, new, True, line.strip())
        offset += len(line.encode())


def _with(node: N, field: str, value: Any) -> N:
    changed = deepcopy(node)
    setattr(changed, field, value)
    return changed


def _header(statement: ast.stmt) -> str:
    """Return the text of a statement without its block: an id depends on it."""
    copy = deepcopy(statement)
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        if isinstance(getattr(copy, field, None), list):
            setattr(copy, field, [])
    try:
        return ast.unparse(copy)
    except Exception:  # a block without a body does not always have a text
        return type(copy).__name__


def _short(text: str, limit: int = 100) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[:60]} … {text[-38:]}"


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_log(node: ast.expr) -> bool:
    called = node.func if isinstance(node, ast.Call) else None
    return (
        isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "_log"
    )


def _is_error(node: ast.Call) -> bool:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    return name[:1].isupper() and name in (
        "InvalidValue",
        "ScheduleConflict",
        "RunRefused",
        "ScheduleNotFound",
        "StoreUnavailable",
        "AssertionError",
        "InvalidTrigger",
        "RunNotFound",
        "TooLarge",
    )


def _is_read_by_people(call: ast.Call, part: ast.expr) -> bool:
    """Return whether an argument is text for people: an error, the field that it names, the name of a
    command."""
    return _is_error(call) or _names_a_field(call, part) or _names_a_command(call, part)


def _names_a_command(call: ast.Call, part: ast.expr) -> bool:
    """Return whether an argument names a command, as in ``session.rows("select runs", …)``."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    named = isinstance(owner, ast.Name) and owner.id in ("session", "transaction")
    return named and _is_text(part) and part is call.args[0]


def _names_a_field(call: ast.Call, part: ast.expr) -> bool:
    """Return whether an argument names the field for an error, as in ``read_duration(ttl, "ttl")``."""
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    return name.startswith(("check_", "read_", "refuse_")) and _is_text(part)


def _is_type(node: ast.Assign | ast.AnnAssign) -> bool:
    """Return whether an assignment defines a type: ``F = TypeVar(…)``, ``Rows: TypeAlias = …``."""
    if isinstance(node, ast.AnnAssign) and "TypeAlias" in ast.unparse(node.annotation):
        return True
    value = node.value
    called = value.func if isinstance(value, ast.Call) else None
    return isinstance(called, ast.Name) and called.id in ("TypeVar", "ParamSpec", "NewType")


def _is_overload(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "overload" for d in node.decorator_list)
