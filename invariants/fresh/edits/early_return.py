"""A function or a loop ends too early, or a loop goes on where it should end."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from copy import deepcopy
from functools import partial

from ..kinds import Kinds
from ..syntax import JUMPS, Block, blocks, editable, place
from .base import Change

TITLE = "return or leave a loop too early, or go on where it should end"
WEIGHT = 6


def changes(function: ast.FunctionDef, kinds: Kinds) -> Iterator[Change]:
    results = [one for one in ast.walk(function) if isinstance(one, ast.Return)]
    last = function.body[-1]
    exits: ast.stmt | None = None
    if isinstance(last, ast.Return):
        exits = last
    elif not any(one.value is not None for one in results):
        exits = ast.Return(None)
    for block, owner in blocks(function):
        inner = owner is not function and not isinstance(block[-1], JUMPS)
        if exits is not None and inner and not _comes_next(function, owner, exits):
            yield Change(block[-1], partial(_append, block, exits))
        looped = isinstance(owner, ast.For | ast.While) and owner.body is block
        if looped and not isinstance(block[-1], JUMPS):
            yield Change(block[-1], partial(_append, block, ast.Break()))
        for one in block:
            if isinstance(one, ast.Continue):
                yield Change(one, partial(place, block, one, [ast.Break()]))
            elif isinstance(one, ast.Break):
                yield Change(one, partial(place, block, one, [ast.Continue()]))
    if exits is not None:
        own = [one for one in function.body if editable(one) and one is not last]
        for one in own[1:]:
            yield Change(one, partial(_before, function.body, one, exits))


def _comes_next(function: ast.FunctionDef, owner: ast.AST, exits: ast.stmt) -> bool:
    """Whether the function returns the same behind an `if` anyway."""
    following = next(
        block[at + 1 :]
        for block, _ in blocks(function)
        for at, one in enumerate(block)
        if one is owner
    )
    if not following:
        return function.body[-1] is owner and ast.dump(exits) == ast.dump(ast.Return(None))
    return isinstance(owner, ast.If) and ast.dump(following[0]) == ast.dump(exits)


def _append(block: Block, one: ast.stmt) -> None:
    block.append(ast.copy_location(deepcopy(one), block[-1]))


def _before(block: Block, at: ast.stmt, one: ast.stmt) -> None:
    place(block, at, [ast.copy_location(deepcopy(one), at), at])
