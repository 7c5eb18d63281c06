"""Two adjacent statements change places. Pairs that do the same in either order are left out."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

from ..kinds import Kinds
from ..syntax import JUMPS, Block, blocks, commute, editable
from .base import Change

TITLE = "swap two adjacent statements"
WEIGHT = 12


def changes(function: ast.FunctionDef, kinds: Kinds) -> Iterator[Change]:
    for block, _ in blocks(function):
        for at, (one, other) in enumerate(pairwise(block)):
            fixed = isinstance(one, JUMPS) or isinstance(other, JUMPS)
            if not fixed and editable(one) and editable(other) and not commute(one, other):
                yield Change(one, partial(_swap, block, at))


def _swap(block: Block, at: int) -> None:
    block[at], block[at + 1] = block[at + 1], block[at]
