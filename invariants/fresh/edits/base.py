"""The interface of a kind of edit, and the registry.

An edit is a small mistake as people make them. A file defines

    TITLE   what the mistake is, in a few words
    WEIGHT  how often it is drawn, compared with the other kinds that are possible in a function
    changes(function, kinds)  every change of this kind that is possible in the function

A change is carried out in place, on the syntax tree that was given. Does not draw (see drawing).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from hicache import registry

from ..kinds import Kinds

EDITS = __package__


@dataclass(frozen=True)
class Change:
    """One possible change. at: the statement that it changes, or the first of them. apply: carries
    it out.
    """

    at: ast.stmt
    apply: Callable[[], None]


class Edit(Protocol):
    TITLE: str
    WEIGHT: int

    def changes(self, function: ast.FunctionDef, kinds: Kinds) -> Iterator[Change]: ...


def load() -> dict[str, Edit]:
    """All kinds of edits, by name."""
    return {name: registry.load(EDITS, name) for name in registry.names(EDITS)}
