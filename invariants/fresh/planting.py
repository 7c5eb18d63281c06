"""A drawn bug, and how it is put into the running core: the edited code takes the place of the
function's own.

The function keeps its identity, so the bug is there wherever the function is used. Does not draw
(see drawing) or judge (see judging).
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from ..mutants import sources
from ..mutants.sources import Place
from .functions import short

Essence = tuple[Any, ...]
Lines = tuple[int, int]
_CONTEXT = 1  # lines around a change in a diff


@dataclass(frozen=True)
class Bug:
    """A drawn bug. edits: the kinds, in order. lines: for each edit, the first and last line of the
    source that must run for it to matter. function: the edited syntax tree.
    """

    number: int
    module: str
    place: Place
    edits: tuple[str, ...]
    lines: tuple[Lines, ...]
    function: ast.FunctionDef = field(repr=False, compare=False)

    @property
    def name(self) -> str:
        return f"{short(self.module)}:{self.place[0]}#{self.number}"

    @property
    def file(self) -> str:
        return self.module.replace(".", "/") + ".py"

    def diff(self) -> list[str]:
        """What the edits change, in the layout of `ast.unparse`, with a line above and below."""
        before = sources.defined(sources.source(self.module))[self.place]
        old, new = (ast.unparse(one).splitlines() for one in (before, self.function))
        return list(difflib.unified_diff(old, new, n=_CONTEXT, lineterm=""))[2:]


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """Puts the bug into the core for the block. Its loops count their steps."""
    function = sources.functions(bug.module)[bug.place]
    before = function.__code__, function.__defaults__, function.__kwdefaults__
    edited = deepcopy(bug.function)
    function.__code__ = sources.compiled(bug.module, bug.place, edited, counted=True)
    given = edited.args
    function.__defaults__ = _changed(given.defaults, before[1])
    named = zip((one.arg for one in given.kwonlyargs), given.kw_defaults, strict=True)
    if before[2] is not None:
        function.__kwdefaults__ = before[2] | {
            name: _value(held, before[2][name]) for name, held in named if name in before[2]
        }
    try:
        yield
    finally:
        function.__code__, function.__defaults__, function.__kwdefaults__ = before


def _changed(nodes: list[ast.expr], values: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    if values is None:
        return None
    return tuple(_value(node, value) for node, value in zip(nodes, values, strict=True))


def _value(node: ast.expr | None, value: Any) -> Any:
    """The value of a default that is written as a constant; else the one it had."""
    return node.value if isinstance(node, ast.Constant) and node.value is not None else value


def essence(module: str, place: Place, function: ast.FunctionDef) -> Essence:
    """What a function does, without line numbers: its compiled code and its defaults."""
    code = sources.compiled(module, place, deepcopy(function), counted=False)
    given = function.args
    defaults = [ast.dump(one) for one in (*given.defaults, *given.kw_defaults) if one is not None]
    return (*_essence(code), tuple(defaults))


def _essence(code: CodeType) -> Essence:
    consts = tuple(
        _essence(one) if isinstance(one, CodeType) else (type(one).__name__, repr(one))
        for one in code.co_consts
    )
    return code.co_code, consts, code.co_names, code.co_varnames, code.co_freevars
