"""Puts a drawn bug into the running core: the edited code takes the place of the function's own.

The function keeps its identity, so the bug is there wherever the function is used. Does not draw
(see drawing) or judge (see judging).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from types import CodeType
from typing import Any, Protocol

from ..mutants import sources
from ..mutants.sources import Place

Essence = tuple[Any, ...]


class Planted(Protocol):
    """What this file needs to know of a bug."""

    @property
    def module(self) -> str: ...

    @property
    def place(self) -> Place: ...

    @property
    def function(self) -> ast.FunctionDef: ...


@contextmanager
def planted(bug: Planted) -> Iterator[None]:
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
