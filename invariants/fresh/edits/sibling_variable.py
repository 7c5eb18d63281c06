"""Another name of the same kind stands where one was meant: `above` for `node`, `free` for
`available`, the arguments of a call the other way round.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from ...mutants.sites import sites
from ..kinds import Kinds
from .base import Change

TITLE = "use the sibling variable: another name or attribute of the same kind"
WEIGHT = 14


def changes(function: ast.FunctionDef, kinds: Kinds) -> Iterator[Change]:
    for node, at in sites(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            for name in kinds.others(node.id, at.lineno):
                yield Change(at, partial(setattr, node, "id", name))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            for name in kinds.fields_like(node):
                yield Change(at, partial(setattr, node, "attr", name))
        elif isinstance(node, ast.Call) and not _is_symmetric(node):
            for index in range(len(node.args) - 1):
                one, other = node.args[index : index + 2]
                if kinds.of(one) and kinds.of(one) == kinds.of(other):
                    yield Change(at, partial(_swap, node.args, index))


def _is_symmetric(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id in ("min", "max")


def _swap(held: list[ast.expr], at: int) -> None:
    held[at], held[at + 1] = held[at + 1], held[at]
