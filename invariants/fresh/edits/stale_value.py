"""A value is read too early: above the statement that changes it, or once before a loop."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

from ..kinds import Kinds
from ..syntax import Block, blocks, commute, editable, effects, exchange, heads, place
from .base import Change

TITLE = "reuse a stale value: read it before a change, or once before a loop"
WEIGHT = 10
_NAME = "_before"


def changes(function: ast.FunctionDef, kinds: Kinds) -> Iterator[Change]:
    for block, owner in blocks(function):
        for one, other in pairwise(block):
            if editable(one) and editable(other) and effects(one).outside:
                for read in _reads(other):
                    hoisted = _taken(read)
                    if kinds.may_change(read) and not commute(one, hoisted):
                        yield Change(other, partial(_hoist, block, one, other, read, hoisted))
        if isinstance(owner, ast.For | ast.While) and owner.body is block:
            yield from _out_of_loop(function, owner)


def _reads(one: ast.stmt) -> Iterator[ast.expr]:
    """What a statement reads of objects: the longest chains of attributes, and lengths."""
    pending: list[ast.AST] = list(heads(one))
    while pending:
        node = pending.pop()
        loaded = isinstance(getattr(node, "ctx", None), ast.Load)
        chain = isinstance(node, ast.Attribute | ast.Subscript) and loaded
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id == "len":
                yield node
            else:
                held = [node.func.value] if isinstance(node.func, ast.Attribute) else []
                pending += [*node.args, *(one.value for one in node.keywords), *held]
        elif chain and isinstance(node, ast.expr):
            yield node
        elif not isinstance(node, ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.Lambda):
            pending += ast.iter_child_nodes(node)


def _taken(read: ast.expr) -> ast.Assign:
    return ast.copy_location(ast.Assign([ast.Name(_NAME, ast.Store())], read), read)


def _hoist(
    block: Block, one: ast.stmt, other: ast.stmt, read: ast.expr, hoisted: ast.Assign
) -> None:
    exchange(read, ast.Name(_NAME, ast.Load()), other)
    place(block, one, [hoisted, one])


def _out_of_loop(function: ast.FunctionDef, loop: ast.For | ast.While) -> Iterator[Change]:
    """The first assignments of a loop's body that do not use what the loop sets."""
    own = effects(loop)
    for one in loop.body:
        if not isinstance(one, ast.Assign):
            return
        now = effects(one)
        theirs = {name for name in own.writes if not name.startswith(".")} - now.writes
        if effects(one).reads.isdisjoint(theirs | now.writes) and now.reads and own.outside:
            yield Change(one, partial(_above, function, loop, one))


def _above(function: ast.FunctionDef, loop: ast.stmt, one: ast.stmt) -> None:
    inside = getattr(loop, "body")  # noqa: B009
    place(inside, one, [])
    for block, _ in blocks(function):
        if any(held is loop for held in block):
            place(block, loop, [one, loop])
            return
