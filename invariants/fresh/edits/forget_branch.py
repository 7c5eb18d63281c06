"""One part of several is forgotten: an assignment of a reset, a target, an element that a loop goes
through, an `else`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from ...mutants.sites import sites
from ..kinds import Kinds
from ..syntax import Block, blocks, remove
from .base import Change

TITLE = "forget one part of several: an assignment, a target, an element, an else"
WEIGHT = 12


def changes(function: ast.FunctionDef, kinds: Kinds) -> Iterator[Change]:
    for block, owner in blocks(function):
        for one in block:
            yield from _assignments(block, one)
        if isinstance(owner, ast.If) and owner.orelse is block:
            yield Change(owner, partial(setattr, owner, "orelse", []))
    for node, at in sites(function):
        shown = node.iter if isinstance(node, ast.For) else None
        if isinstance(shown, ast.Tuple | ast.List) and len(shown.elts) > 1:
            for held in shown.elts:
                yield Change(at, partial(shown.elts.remove, held))


def _assignments(block: Block, one: ast.stmt) -> Iterator[Change]:
    if isinstance(one, ast.AugAssign) and _is_kept(one.target):
        yield Change(one, partial(remove, block, one))
    if not isinstance(one, ast.Assign):
        return
    if len(one.targets) > 1:
        for target in one.targets:
            yield Change(one, partial(one.targets.remove, target))
    target, value = one.targets[0], one.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for index in range(len(target.elts)):
            yield Change(one, partial(_forget, target, value, index))
    elif len(one.targets) == 1 and _is_kept(target):
        yield Change(one, partial(remove, block, one))


def _is_kept(target: ast.expr) -> bool:
    """Whether an assignment changes what somebody else sees."""
    return isinstance(target, ast.Attribute | ast.Subscript)


def _forget(target: ast.Tuple, value: ast.Tuple, index: int) -> None:
    del target.elts[index], value.elts[index]
