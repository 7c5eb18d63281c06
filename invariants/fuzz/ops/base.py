"""The interface of an operation's file, and the registry."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from ..draws import Draws
from ..hand import Hand
from ..tapes.schema import Schema
from ..tapes.schema import check as check_schemas
from ..tapes.tape import Tape

Arguments = dict[str, Any]


class Operation(Protocol):
    WEIGHT: int
    ARGS: Schema

    def draw(self, hand: Hand, draws: Draws) -> Arguments | None:
        """Returns literal arguments for this state, or None if the operation is not possible."""

    def play(self, hand: Hand, args: Arguments) -> None:
        """Performs the operation. Does nothing if the entry does not fit the state, because an
        earlier entry was deleted.
        """


def names() -> list[str]:
    found = (path.stem for path in Path(__file__).parent.glob("*.py"))
    return sorted(name for name in found if not name.startswith("_") and name != "base")


def load() -> dict[str, Operation]:
    """All operations by name."""
    return {name: import_module(f"invariants.fuzz.ops.{name}") for name in names()}


def check(tape: Tape, ops: dict[str, Operation], name: str = "") -> None:
    """Raises CallerError with one line if an entry is invalid."""
    check_schemas(tape, {one: op.ARGS for one, op in ops.items()}, name)
