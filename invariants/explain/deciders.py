"""Which functions of the core decide the fields of an outcome.

Read from the source: a field is decided by the functions that are called for its value where the
outcome is made, or for the variables and parameters in it. Lives here: following values back
through the source. Does not know what ran.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from hicache.core import actions

from ..source_lines import HICACHE, ROOT, SourceLine

STEP, LEAST = 0.7, 0.2  # what a function is worth less for each step away, and at least


class _Function(NamedTuple):
    """place: its first line. calls: in its body, by the name of what is called."""

    place: SourceLine
    node: ast.FunctionDef
    calls: dict[str, list[ast.Call]]


def deciders(kind: str, fields: Sequence[str]) -> dict[SourceLine, float]:
    """Returns the functions that decide these fields of an outcome of a kind: 1 if it is called
    for the field itself, less for each step from there.
    """
    found: dict[SourceLine, float] = {}
    order = getattr(actions, kind)._fields
    for function in _functions():
        for call in function.calls.get(kind, ()):
            for field in fields:
                value = _argument(call, order.index(field), field)
                if value is not None:
                    _follow(value, function, 1.0, found, set())
    return found


def _argument(call: ast.Call, at: int, name: str) -> ast.expr | None:
    named = (one.value for one in call.keywords if one.arg == name)
    return call.args[at] if at < len(call.args) else next(named, None)


def _follow(
    value: ast.expr,
    function: _Function,
    worth: float,
    found: dict[SourceLine, float],
    seen: set[tuple[SourceLine, str]],
) -> None:
    """Adds what decides a value in the body of a function."""
    if worth < LEAST:
        return
    for name in _called(value):
        for one in _functions():
            if one.place.function == name and found.get(one.place, 0.0) < worth:
                found[one.place] = worth
                for inner in ast.walk(one.node):
                    if isinstance(inner, ast.Return) and inner.value is not None:
                        _follow(inner.value, one, worth * STEP, found, seen)
    for node in ast.walk(value):
        if isinstance(node, ast.Name) and (function.place, node.id) not in seen:
            seen.add((function.place, node.id))
            for assigned in _assigned(function, node.id):
                _follow(assigned, function, worth * STEP, found, seen)
            _follow_parameter(function, node.id, worth * STEP, found, seen)


def _follow_parameter(
    function: _Function,
    name: str,
    worth: float,
    found: dict[SourceLine, float],
    seen: set[tuple[SourceLine, str]],
) -> None:
    names = [one.arg for one in function.node.args.args]
    if name not in names or name == "state":
        return
    for caller in _functions():
        for call in caller.calls.get(function.place.function, ()):
            value = _argument(call, names.index(name), name)
            if value is not None:
                _follow(value, caller, worth, found, seen)


def _assigned(function: _Function, name: str) -> Iterator[ast.expr]:
    """The values that the function assigns to a variable, or appends to it."""
    for node in ast.walk(function.node):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.For):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            value = node.iter if isinstance(node, ast.For) else node.value
            bound = [one for target in targets for one in ast.walk(target)]
            if value is not None and any(
                isinstance(one, ast.Name) and one.id == name for one in bound
            ):
                yield value


@cache
def _functions() -> tuple[_Function, ...]:
    """The functions of the core."""
    found = []
    for path in sorted((HICACHE / "core").rglob("*.py")):
        file = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                start = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                calls: dict[str, list[ast.Call]] = {}
                for call in ast.walk(node):
                    if isinstance(call, ast.Call):
                        calls.setdefault(_name(call), []).append(call)
                found.append(_Function(SourceLine(file, start, node.name), node, calls))
    return tuple(found)


def _called(value: ast.expr) -> list[str]:
    return [_name(one) for one in ast.walk(value) if isinstance(one, ast.Call)]


def _name(call: ast.Call) -> str:
    called = call.func
    if isinstance(called, ast.Name):
        return called.id
    return called.attr if isinstance(called, ast.Attribute) else ""
