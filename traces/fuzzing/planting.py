"""The option `--plant`: one bug of invariants/planted in the core while a command runs.

Also the canary: a bug that the fuzzer must find. Does not define other bugs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hicache.core.errors import CallerError
from hicache.core.ledger import Pool
from hicache.core.types import Pages
from invariants.fuzz.executors import REPLIES
from invariants.fuzz.tapes.tape import Tape
from invariants.planted import base as bugs

from ..terminal.rows import option

NOTE = "plant"


def bug(default: str) -> Any:
    """The option that names a planted bug. default: what happens without it, in words."""
    return option(f"plant this bug (default: {default})", str, "NAME")


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plants the bug for the block; an empty name plants none. Raises CallerError if unknown."""
    if not name:
        yield
        return
    with bugs.planted(name):
        yield


def check(name: str) -> str:
    """Returns the name if it is empty or a planted bug. Raises CallerError otherwise."""
    if name:
        bugs.load(name)
    return name


def requirements(
    name: str, components: tuple[str, ...], ranks: int, passes: int
) -> tuple[tuple[str, ...], int, int]:
    """The components, ranks and passes of a request in flight with which the bug can occur.

    Empty components and 0 mean any. Raises CallerError if what was given excludes the bug.
    """
    if not name:
        return components, ranks, passes
    bug = bugs.load(name)
    if 0 < passes < bug.passes:
        raise CallerError(
            f"--passes: expected {bug.passes} or more, to have {name} at all, found {passes}; "
            "leave the option out"
        )
    device = bug.executor != REPLIES
    ranks = ranks or bug.ranks
    if ranks < bug.ranks or (device and ranks > 1):
        wanted = "1, as it is in the transfer controller" if device else f"{bug.ranks} or more"
        raise CallerError(
            f"--ranks: expected {wanted}, to have {name} at all, found {ranks}; "
            "leave the option out"
        )
    return components or bug.components, ranks, passes or bug.passes


def wanted(given: str | None, tape: Tape, name: str) -> str:
    """The bug that was asked for, or else the one in the notes of the tape `name`."""
    if given is not None:
        return check(given)
    try:
        return check(tape.notes.get(NOTE, ""))
    except CallerError as error:
        raise CallerError(f"{name}: notes: {error}") from None


@contextmanager
def canary(on: bool) -> Iterator[None]:
    """If `on`, the last page of each group of pages that is given back leaks inside the block."""
    if not on:
        yield
        return
    give_back = Pool.give_back

    def leaking(self: Pool, pages: Pages) -> None:
        give_back(self, pages[:-1])

    Pool.give_back = leaking  # type: ignore[method-assign]
    try:
        yield
    finally:
        Pool.give_back = give_back  # type: ignore[method-assign]
