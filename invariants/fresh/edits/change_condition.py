"""A condition is negated, or made weaker or stronger."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from ...mutants.sites import OPPOSITE, sites
from ..kinds import Kinds
from ..syntax import exchange
from .base import Change

TITLE = "negate or weaken a condition"
WEIGHT = 10


def changes(function: ast.FunctionDef, kinds: Kinds) -> Iterator[Change]:
    for node, at in sites(function):
        if isinstance(node, ast.BoolOp):
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield Change(at, partial(setattr, node, "op", other))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield Change(at, partial(exchange, node, node.operand, at))
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in OPPOSITE:
            opposite = OPPOSITE[type(node.ops[0])]()
            yield Change(at, partial(node.ops.__setitem__, 0, opposite))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ("any", "all"):
                other_name = "all" if node.func.id == "any" else "any"
                yield Change(at, partial(setattr, node.func, "id", other_name))
        elif isinstance(node, ast.If | ast.IfExp) and not _is_changed_below(node.test):
            yield Change(at, partial(_negate, node))


def _is_changed_below(test: ast.expr) -> bool:
    """Whether the changes of its parts include that of the whole condition."""
    if isinstance(test, ast.Compare):
        return type(test.ops[0]) in OPPOSITE
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)


def _negate(node: ast.If | ast.IfExp) -> None:
    node.test = ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test)
