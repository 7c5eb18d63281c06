"""A guard is missing: an early exit, one operand of a condition, a filter, or a bound."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from ...mutants.sites import sites
from ..kinds import Kinds
from ..syntax import JUMPS, blocks, editable, exchange, remove
from .base import Change

TITLE = "drop a guard: an early exit, an operand of and / or, a filter, a bound of min / max"
WEIGHT = 14


def changes(function: ast.FunctionDef, kinds: Kinds) -> Iterator[Change]:
    for block, _ in blocks(function):
        for one in block:
            if editable(one) and _is_early_exit(one):
                yield Change(one, partial(remove, block, one))
    for node, at in sites(function):
        if isinstance(node, ast.BoolOp):
            for operand in node.values:
                yield Change(at, partial(_drop, node, operand, at))
        elif isinstance(node, ast.comprehension):
            for test in node.ifs:
                yield Change(at, partial(node.ifs.remove, test))
        elif isinstance(node, ast.Call) and _is_bound(node):
            for held in node.args:
                yield Change(at, partial(exchange, node, held, at))


def _is_early_exit(one: ast.stmt) -> bool:
    if not isinstance(one, ast.If) or one.orelse:
        return False
    return len(one.body) == 1 and isinstance(one.body[0], JUMPS)


def _is_bound(node: ast.Call) -> bool:
    """Whether it is like `max(0, count)`."""
    named = isinstance(node.func, ast.Name) and node.func.id in ("min", "max")
    plain = not any(isinstance(one, ast.Starred) for one in node.args)
    return named and plain and len(node.args) == 2 and not node.keywords


def _drop(node: ast.BoolOp, operand: ast.expr, at: ast.stmt) -> None:
    left = [one for one in node.values if one is not operand]
    exchange(node, left[0] if len(left) == 1 else ast.BoolOp(node.op, left), at)
