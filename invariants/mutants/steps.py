"""A bound on the core's work in steps: what never ends is found by counting, the same everywhere.

A step is a turn of a loop in the core, or an event. Lives here: the count, its limit and the
statement that counts. Must not live here: clocks, or whose loops count (`mutate.counted`).
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

NAME = "_a_step_of_the_core"
Node = TypeVar("Node", bound=ast.AST)


class Endless(BaseException):
    """Raised into a sequence that does not come to an end; no `except Exception` may hold it."""


class Steps:
    """How many there were, and the last one that is allowed."""

    __slots__ = ("count", "most")

    def __init__(self, most: int = 1 << 62) -> None:
        self.count = 0
        self.most = most

    def __call__(self) -> None:
        self.count += 1
        if self.count > self.most:
            raise Endless(f"more than {self.most} steps")


@contextmanager
def limited(steps: Steps) -> Iterator[Steps]:
    """These steps are counted until the block ends."""
    before = vars(builtins).get(NAME)
    setattr(builtins, NAME, steps)
    try:
        yield steps
    finally:
        if before is None:
            delattr(builtins, NAME)
        else:
            setattr(builtins, NAME, before)


def counting(function: Node) -> Node:
    """The function with its loops counting; changed in place."""
    for node in ast.walk(function):
        if isinstance(node, ast.For | ast.While):
            node.body.insert(0, ast.Expr(ast.Call(ast.Name(NAME, ast.Load()), [], [])))
    return function
