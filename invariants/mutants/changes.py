"""The kinds of generic mutants: possible changes of one node of the source.

Lives here: kinds and replacements, and which nodes are never changed. Does not name or apply
mutants (see mutate) and knows nothing about the core.

Asserts, guards that only raise CoreBug, error messages and default values are not changed, because
they are not decisions.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

Made = tuple[str, ast.AST]

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
_COMPARED = BOUNDARY | OPPOSITE
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
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


def changes(node: ast.AST) -> list[Made]:
    """Returns the kinds and replacements of a node."""
    change = _CHANGES.get(type(node))
    return change(node) if change is not None else []


def _compare(node: Any) -> list[Made]:
    made: list[Made] = []
    for at, op in enumerate(node.ops):
        new = _COMPARED[type(op)]
        ops = [new() if at == index else one for index, one in enumerate(node.ops)]
        kind = f"compare-{type(op).__name__}-{new.__name__}"
        made.append((kind, ast.Compare(node.left, ops, node.comparators)))
    return made


def _constant(node: Any) -> list[Made]:
    value = node.value
    if type(value) is bool:
        return [("constant-not", ast.Constant(not value))]
    if type(value) is not int:
        return []
    return [("boundary+1", ast.Constant(value + 1)), ("boundary-1", ast.Constant(value - 1))]


def _called(node: Any) -> list[Made]:
    if not (isinstance(node.func, ast.Name) and node.func.id == "len"):
        return []
    return [
        ("boundary+1", ast.BinOp(node, ast.Add(), ast.Constant(1))),
        ("boundary-1", ast.BinOp(node, ast.Sub(), ast.Constant(1))),
    ]


def _computed(node: Any) -> list[Made]:
    new = _COMPUTED.get(type(node.op))
    if new is None:
        return []
    kind = f"arithmetic-{type(node.op).__name__}-{new.__name__}"
    if isinstance(node, ast.AugAssign):
        return [(kind, ast.AugAssign(node.target, new(), node.value))]
    return [(kind, ast.BinOp(node.left, new(), node.right))]


def _statement(node: Any) -> list[Made]:
    return [("deleted-call", ast.Pass())] if isinstance(node.value, ast.Call) else []


def _branch(node: Any) -> list[Made]:
    """Negates a condition, which swaps its branches, or always takes one of them."""
    always = type(node)(ast.Constant(True), node.body, node.orelse)
    never = type(node)(ast.Constant(False), node.body, node.orelse)
    return [("negated", _negated(node)), ("always", always), ("never", never)]


def _while(node: Any) -> list[Made]:
    return [("skipped-loop", ast.While(ast.Constant(False), node.body, node.orelse))]


def _for(node: Any) -> list[Made]:
    skipped: list[ast.stmt] = [ast.Break()]
    return [("skipped-loop", ast.For(node.target, node.iter, skipped, node.orelse))]


def _negated(node: Any) -> ast.AST:
    return type(node)(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)  # type: ignore[no-any-return]


def _both(node: Any) -> list[Made]:
    if isinstance(node.op, ast.And):
        return [("and-or", ast.BoolOp(ast.Or(), node.values))]
    return [("or-and", ast.BoolOp(ast.And(), node.values))]


def _unary(node: Any) -> list[Made]:
    if isinstance(node.op, ast.Not):
        return [("not-dropped", node.operand)]
    return [("minus-dropped", node.operand)] if isinstance(node.op, ast.USub) else []


def _return(node: Any) -> list[Made]:
    held = node.value
    if held is None or (isinstance(held, ast.Constant) and held.value is None):
        return []
    return [("return-none", ast.Return(ast.Constant(None)))]


_CHANGES: dict[type[ast.AST], Callable[[Any], list[Made]]] = {
    ast.Compare: _compare,
    ast.Constant: _constant,
    ast.Call: _called,
    ast.BinOp: _computed,
    ast.AugAssign: _computed,
    ast.Expr: _statement,
    ast.If: _branch,
    ast.IfExp: _branch,
    ast.While: _while,
    ast.For: _for,
    ast.BoolOp: _both,
    ast.UnaryOp: _unary,
    ast.Return: _return,
}
