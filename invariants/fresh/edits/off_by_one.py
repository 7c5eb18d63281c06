"""Off by one at a boundary: a comparison, an end of a slice or range, a number."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from ...mutants.sites import BOUNDARY, sites
from ..kinds import Kinds
from ..syntax import exchange
from .base import Change

TITLE = "off by one: < for <=, the end of a slice or range, a number"
WEIGHT = 12


def changes(function: ast.FunctionDef, kinds: Kinds) -> Iterator[Change]:
    for node, at in sites(function):
        if isinstance(node, ast.Compare):
            for index, op in enumerate(node.ops):
                if type(op) in BOUNDARY:
                    beside = BOUNDARY[type(op)]()
                    yield Change(at, partial(node.ops.__setitem__, index, beside))
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            for value in (node.value - 1, node.value + 1):
                yield Change(at, partial(setattr, node, "value", value))
        elif isinstance(node, ast.BinOp) and _is_one(node):
            yield Change(at, partial(exchange, node, node.left, at))
        elif isinstance(node, ast.Slice):
            for end in (node.lower, node.upper):
                yield from _beside(end, at)
        elif isinstance(node, ast.Call) and _is_range(node):
            for end in node.args:
                yield from _beside(end, at)


def _is_range(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id == "range"


def _is_one(node: ast.BinOp) -> bool:
    """Whether it is like `count + 1` or `count - 1`."""
    plus = isinstance(node.op, ast.Add | ast.Sub)
    return plus and isinstance(node.right, ast.Constant) and node.right.value == 1


def _beside(end: ast.expr | None, at: ast.stmt) -> Iterator[Change]:
    if end is None or isinstance(end, ast.Constant | ast.Starred):
        return
    for op in (ast.Add(), ast.Sub()):
        moved = ast.BinOp(end, op, ast.Constant(1))
        yield Change(at, partial(exchange, end, moved, at))
