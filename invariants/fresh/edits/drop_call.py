"""A call that is made only for its effect is missing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from ..kinds import Kinds
from ..syntax import blocks, remove
from .base import Change

TITLE = "drop a call that is made only for its effect"
WEIGHT = 8


def changes(function: ast.FunctionDef, kinds: Kinds) -> Iterator[Change]:
    for block, _ in blocks(function):
        for one in block:
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Call):
                yield Change(one, partial(remove, block, one))
