"""Which nodes of a function may be edited.

Asserts, guards that only raise CoreBug, error messages and default values are not, because they are
not decisions.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

BOUNDARY: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_LEFT_ALONE = (ast.Assert, ast.Raise, ast.JoinedStr)
_FIELDS_LEFT_ALONE = ("annotation", "returns", "args", "decorator_list")


def sites(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, ast.stmt]]:
    """Yields the nodes of a function that may be changed, in source order, each with its
    statement.
    """
    for statement in function.body:
        yield from _below(statement, statement)


def _below(node: ast.AST, within: ast.stmt) -> Iterator[tuple[ast.AST, ast.stmt]]:
    if isinstance(node, _LEFT_ALONE) or is_guard(node):
        return
    within = node if isinstance(node, ast.stmt) else within
    yield node, within
    for field, held in ast.iter_fields(node):
        if field not in _FIELDS_LEFT_ALONE or isinstance(node, ast.Call):
            for one in held if isinstance(held, list) else [held]:
                if isinstance(one, ast.AST):
                    yield from _below(one, within)


def is_guard(node: ast.AST) -> bool:
    """Whether a node is `if ...: raise CoreBug(...)`, which is like an assert."""
    if not (isinstance(node, ast.If) and len(node.body) == 1 and not node.orelse):
        return False
    first = node.body[0]
    raised = first.exc if isinstance(first, ast.Raise) else None
    name = raised.func if isinstance(raised, ast.Call) else None
    return isinstance(name, ast.Name) and name.id == "CoreBug"
