"""The two roots of errors: the caller's mistakes and our own bugs. Nothing is swallowed."""

from __future__ import annotations

from typing import NamedTuple


class About(NamedTuple):
    """Whom an error is about: a "node", "request" or "flight" by number, a "page" of a component on
    a tier, or the whole "pool" of one."""

    kind: str
    number: int = -1
    tier: int = -1
    component: str = ""


class HicacheError(Exception):
    """Anything this project raises on purpose. about: whom it names, for whoever explains it."""

    def __init__(self, text: str = "", *about: About) -> None:
        super().__init__(text)
        self.about = about


class CallerError(HicacheError):
    """The caller broke the contract: says what was expected, what was found, what to do."""


class CoreBug(HicacheError, AssertionError):
    """An assert inside the core failed: a defect of this project, never of its caller."""

    exit_code = 10
