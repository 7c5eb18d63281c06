"""What an operation is, and the registry.

A file of this folder has those of one subject, in a table `OPS`. Each is two functions: what is
drawn for it, and what it does.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from invariants.fuzz.draws import Draws
from invariants.fuzz.hicache.faults.base import load as load_faults
from invariants.fuzz.hicache.hand import Hand
from invariants.fuzz.sequence import Schema, Tape
from invariants.fuzz.sequence import check as check_schemas

Arguments = dict[str, Any]


class Operation(NamedTuple):
    """weight: how often it is drawn; 0: only where something else asks for it. draw: literal
    arguments for this state, or None if the operation is not possible. play: performs it. Does
    nothing if the entry does not fit the state, because an earlier entry was deleted.
    """

    weight: int
    args: Schema
    draw: Callable[[Hand, Draws], Arguments | None]
    play: Callable[[Hand, Arguments], None]


def load() -> dict[str, Operation]:
    """All operations by name."""
    stems = (path.stem for path in Path(__file__).parent.glob("[!_]*.py") if path.stem != "base")
    modules = (import_module(f"invariants.fuzz.hicache.ops.{stem}") for stem in stems)
    return dict(sorted((name, op) for module in modules for name, op in module.OPS.items()))


def check(tape: Tape, ops: dict[str, Operation], name: str = "") -> None:
    """Raises CallerError with one line if an entry is invalid."""
    check_schemas(tape, {one: op.args for one, op in ops.items()}, load_faults(), name or "tape")
