"""A wrong default: of a parameter, of `get`, of an `else`, or of a first or last value."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from ...mutants.sites import sites
from ..kinds import Kinds
from .base import Change

TITLE = "wrong default: of a parameter, of get, of a first value, of what is returned"
WEIGHT = 6
_OTHER = {0: 1, 1: 0}


def changes(function: ast.FunctionDef, kinds: Kinds) -> Iterator[Change]:
    given = function.args
    for held in (*given.defaults, *given.kw_defaults):
        yield from _constant(held, function.body[0])
    for node, at in sites(function):
        if isinstance(node, ast.Return) or (
            isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        ):
            yield from _constant(node.value, at)
        elif isinstance(node, ast.IfExp):
            yield from _constant(node.orelse, at)
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr == "get":
                yield from _constant(node.args[-1], at)
            for keyword in node.keywords:
                if keyword.arg != "strict":  # of zip: like an assert
                    yield from _constant(keyword.value, at)


def _constant(held: ast.expr | None, at: ast.stmt) -> Iterator[Change]:
    if isinstance(held, ast.UnaryOp) and isinstance(held.operand, ast.Constant):
        yield Change(at, partial(setattr, held.operand, "value", 0))
    elif isinstance(held, ast.Constant) and isinstance(held.value, bool):
        yield Change(at, partial(setattr, held, "value", not held.value))
    elif isinstance(held, ast.Constant) and isinstance(held.value, int) and held.value in _OTHER:
        yield Change(at, partial(setattr, held, "value", _OTHER[held.value]))
