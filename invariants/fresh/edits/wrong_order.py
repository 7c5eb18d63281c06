"""A wrong order: a loop from the other end, another key of a sort or heap, min for max."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from ...mutants.sites import sites
from ..kinds import Kinds
from ..syntax import exchange
from .base import Change

TITLE = "wrong order: a loop from the other end, another key, min for max"
WEIGHT = 6
_MIRRORED = {"min": "max", "max": "min"}


def changes(function: ast.FunctionDef, kinds: Kinds) -> Iterator[Change]:
    for node, at in sites(function):
        if isinstance(node, ast.For):
            yield Change(at, partial(_backwards, node))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in _MIRRORED:
                yield Change(at, partial(setattr, node.func, "id", _MIRRORED[node.func.id]))
            elif node.func.id in ("reversed", "sorted") and node.args:
                plain = ast.Call(ast.Name("list", ast.Load()), node.args, [])
                yield Change(at, partial(exchange, node, plain, at))
            for keyword in node.keywords:
                if keyword.arg == "key":
                    yield Change(at, partial(node.keywords.remove, keyword))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            if not isinstance(node.operand, ast.Constant):
                yield Change(at, partial(exchange, node, node.operand, at))
        elif isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load) and _is_rank(node):
            yield Change(at, partial(_swap, node))


def _backwards(node: ast.For) -> None:
    whole = ast.Call(ast.Name("list", ast.Load()), [node.iter], [])
    back = ast.UnaryOp(ast.USub(), ast.Constant(1))
    node.iter = ast.Subscript(whole, ast.Slice(None, None, back), ast.Load())


def _is_rank(node: ast.Tuple) -> bool:
    """Whether a tuple is made to be compared: several parts, one of them negative."""
    negative = any(isinstance(one, ast.UnaryOp) for one in node.elts)
    return len(node.elts) > 1 and negative


def _swap(node: ast.Tuple) -> None:
    node.elts[0], node.elts[1] = node.elts[1], node.elts[0]
