"""The functions into which bugs are drawn, and those that are left out, each with its reason.

Lives here: the choice. Does not draw (see drawing) or change anything.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import lru_cache

from ..mutants import sources
from ..mutants.sources import Place

_TEXT = "it makes text for messages"
_FINDS_FILES = "it finds files by their names; tests judge it"
_NOT_PLAYED = "no sequence calls it; tests judge it"

# By module, or by module and function ("Class.*" for all of a class): why no bug is put there.
LEFT_OUT = {
    "hicache.core.errors": _TEXT,
    "hicache.core.ledger:_where": _TEXT,
    "hicache.core.ledger:Pool._page": _TEXT,
    "hicache.core.ledger:Pool._pages": _TEXT,
    "hicache.core.components.base": _FINDS_FILES,
    "hicache.core.entries": _FINDS_FILES,
    "hicache.core.core:Core._not_now": _NOT_PLAYED,
    "hicache.core.events:Arrived.from_tokens": _NOT_PLAYED,
    "hicache.core.events:Finished.from_tokens": _NOT_PLAYED,
    "hicache.runtime.controller:ControllerOptions.*": _NOT_PLAYED,
    "hicache.runtime.controller:TransferController.is_unanswered": _NOT_PLAYED,
    "hicache.runtime.controller:TransferController.unanswered": _NOT_PLAYED,
    "hicache.runtime.driver:Driver.poll": _NOT_PLAYED,
    "hicache.runtime.driver:Driver.settle": _NOT_PLAYED,
    "hicache.runtime.lanes:Lane.__contains__": _NOT_PLAYED,
    "hicache.runtime.agreement:Agreement.start": _NOT_PLAYED,
    "hicache.runtime.agreement:agree_on_settings": _NOT_PLAYED,
    "hicache.runtime.agreement:Agreement._wrong": _TEXT,
    "hicache.runtime.agreement:_number": _NOT_PLAYED,
    "hicache.runtime.agreement:_numbers": _NOT_PLAYED,
    "hicache.runtime.agreement:_said": _TEXT,
    "hicache.runtime.agreement:_short": _TEXT,
    "hicache.runtime.agreement:_who_has": _TEXT,
    "hicache.runtime.agreement:agree_on": _NOT_PLAYED,
}
RUNTIME = (
    "hicache.runtime.agreement",
    "hicache.runtime.controller",
    "hicache.runtime.driver",
    "hicache.runtime.lanes",
)
_TEXTS = ("__repr__", "__str__")


@dataclass(frozen=True)
class Function:
    """A function of the source. size: its statements."""

    module: str
    place: Place
    size: int


def source_of(one: Function) -> ast.FunctionDef:
    return sources.defined(sources.source(one.module))[one.place]


def short(module: str) -> str:
    """The name of a module as reports show it."""
    return sources.short(module).removeprefix("hicache.")


@lru_cache(maxsize=1)
def functions() -> tuple[Function, ...]:
    """All functions into which a bug may be drawn."""
    return tuple(
        Function(module, place, sum(isinstance(one, ast.stmt) for one in ast.walk(node)) - 1)
        for module in (*sources.modules(), *RUNTIME)
        for place, node in sources.defined(sources.source(module)).items()
        if place in sources.functions(module) and not reason(module, place[0])
        if any(map(_does_something, node.body))
    )


def _does_something(one: ast.stmt) -> bool:
    """Whether a statement is no docstring and no `...`."""
    return not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))


def reason(module: str, function: str) -> str:
    """Why no bug is put into this function; empty if bugs are."""
    owner, _, name = function.rpartition(".")
    if name in _TEXTS:
        return _TEXT
    asked = (module, f"{module}:{function}", f"{module}:{owner}.*")
    return next((LEFT_OUT[one] for one in asked if one in LEFT_OUT), "")
