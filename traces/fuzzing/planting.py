"""`--plant`: one bug of invariants/planted in the core for as long as a command runs.

Must not live here: what a bug is or does (invariants/planted).
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager

from hicache.core.errors import CallerError
from invariants.fuzz.tapes.tape import Tape
from invariants.planted import base as bugs

NOTE = "plant"


def add_option(parser: ArgumentParser, default: str) -> None:
    parser.add_argument("--plant", metavar="NAME", help=f"plant this bug (default: {default})")


@contextmanager
def planted(name: str) -> Iterator[None]:
    """With that bug in the core; with none for an empty name. Raises CallerError for a name that
    is not there."""
    if not name:
        yield
        return
    with bugs.planted(name):
        yield


def check(name: str) -> str:
    """The name, if there is such a bug or it is empty. Raises CallerError."""
    if name:
        bugs.load(name)
    return name


def at_home(name: str, components: tuple[str, ...], ranks: int) -> tuple[tuple[str, ...], int]:
    """Components and ranks with which the bug is there at all; what is empty or 0 is open. Raises
    CallerError where they rule it out."""
    if not name:
        return components, ranks
    bug = bugs.load(name)
    needed, device = getattr(bug, "RANKS", 0), hasattr(bug, "EXECUTOR")
    ranks = ranks or needed
    if ranks < needed or (device and ranks > 1):
        wanted = "1, as it is in the transfer controller" if device else f"{needed} or more"
        raise CallerError(
            f"--ranks: expected {wanted}, to have {name} at all, found {ranks}; "
            "leave the option out"
        )
    return components or getattr(bug, "COMPONENTS", ()), ranks


def wanted(given: str | None, tape: Tape, name: str) -> str:
    """The bug that was asked for, else the one that the tape of that name notes."""
    if given is not None:
        return check(given)
    try:
        return check(tape.notes.get(NOTE, ""))
    except CallerError as error:
        raise CallerError(f"{name}: notes: {error}") from None
