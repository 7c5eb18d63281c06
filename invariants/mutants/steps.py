"""A limit of the core's work in steps: endless loops are found by counting, the same on any
machine.

A step is one iteration of a loop in the core, or one event. Lives here: the count, its limit and
the statement that counts. Does not use clocks or choose the loops (see `sources.counted`).
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

NAME = "_a_step_of_the_core"
Node = TypeVar("Node", bound=ast.AST)
Guard = Callable[[], AbstractContextManager[None]]  # a limit of another kind


class Endless(BaseException):
    """Raised when the limit is exceeded. A BaseException, so that `except Exception` does not catch
    it.
    """


class Steps:
    """The number of steps, and the limit."""

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
    """Counts into `steps` within the block."""
    before = vars(builtins).get(NAME)
    setattr(builtins, NAME, steps)
    try:
        yield steps
    finally:
        if before is None:
            delattr(builtins, NAME)
        else:
            setattr(builtins, NAME, before)


@contextmanager
def unguarded() -> Iterator[None]:
    """A guard without a limit of time."""
    yield


def counting(function: Node) -> Node:
    """Makes the loops of a function count, in place."""
    for node in ast.walk(function):
        if isinstance(node, ast.For | ast.While):
            node.body.insert(0, ast.Expr(ast.Call(ast.Name(NAME, ast.Load()), [], [])))
    return function
